"""The cancellation token goes from none to graceful to immediate, and back only by a reset."""

import asyncio

import pytest
from agents import soon

from orchestrator_interactive.kernel import CancellationToken


def test_it_goes_from_none_to_graceful_to_immediate_and_never_back() -> None:
    token = CancellationToken()
    assert (token.state, token.is_cancelled) == ("none", False)
    assert token.request_graceful()
    assert (token.state, token.is_cancelled, token.is_graceful) == ("graceful", True, True)
    assert token.request_immediate()
    assert (token.state, token.is_graceful, token.is_immediate) == ("immediate", False, True)
    assert not token.request_graceful()
    assert not token.request_immediate()
    assert token.is_immediate


def test_a_reset_makes_it_new() -> None:
    token = CancellationToken()
    token.request_immediate()
    token.reset()
    assert not token.is_cancelled
    assert token.request_graceful()


def test_a_callback_is_called_at_once_and_at_every_stage_until_it_leaves() -> None:
    token, seen = CancellationToken(), []
    token.request_graceful()
    with token.watch(lambda: seen.append(token.state)):
        token.request_graceful()
        token.request_immediate()
    token.reset()
    token.request_graceful()
    assert seen == ["graceful", "immediate"]


def test_the_same_callback_can_be_registered_twice() -> None:
    token, seen = CancellationToken(), []

    def look() -> None:
        seen.append(1)

    with token.watch(look):
        with token.watch(look):
            pass
        token.request_graceful()
    assert seen == [1]


@pytest.mark.parametrize("immediate", [False, True])
async def test_waiting_ends_at_the_stage_waited_for(*, immediate: bool) -> None:
    token = CancellationToken()
    waiting = asyncio.create_task(token.wait(immediate=immediate))
    await asyncio.sleep(0)
    token.request_graceful()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.done() is not immediate
    token.request_immediate()
    await soon(waiting)


@pytest.mark.parametrize("late", [False, True])
def test_a_child_follows_its_parent_and_catches_up(*, late: bool) -> None:
    parent, child = CancellationToken(), CancellationToken()
    if not late:
        parent.register_child(child)
    parent.request_graceful()
    if late:
        parent.register_child(child)
    assert child.is_graceful
    parent.request_immediate()
    assert child.is_immediate


def test_a_child_that_is_further_than_its_parent_stays_there() -> None:
    parent, child = CancellationToken(), CancellationToken()
    child.request_immediate()
    parent.request_graceful()
    parent.register_child(child)
    assert child.is_immediate


def test_neither_the_parent_of_a_child_nor_a_child_that_left_is_cancelled() -> None:
    parent, child = CancellationToken(), CancellationToken()
    parent.register_child(child)
    child.request_immediate()
    assert not parent.is_cancelled
    child.reset()
    parent.unregister_child(child)
    parent.request_graceful()
    assert not child.is_cancelled
