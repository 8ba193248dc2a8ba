"""The cancellation token: two stages, only ever forward, until it is reset."""

import asyncio

import pytest
from agents import soon

from orchestrator_interactive.kernel import CancellationToken


def test_it_goes_from_none_to_graceful_to_immediate() -> None:
    token = CancellationToken()
    assert (token.state, token.is_cancelled) == ("none", False)
    assert token.request_graceful()
    assert (token.state, token.is_cancelled, token.is_graceful) == ("graceful", True, True)
    assert token.request_immediate()
    assert (token.state, token.is_graceful, token.is_immediate) == ("immediate", False, True)


def test_it_never_goes_back() -> None:
    token = CancellationToken()
    token.request_immediate()
    assert not token.request_graceful()
    assert not token.request_immediate()
    assert token.is_immediate


def test_a_reset_makes_it_new() -> None:
    token = CancellationToken()
    token.request_immediate()
    token.reset()
    assert not token.is_cancelled
    assert token.request_graceful()


def test_a_watcher_sees_every_step_and_the_one_before_it_came() -> None:
    token, seen = CancellationToken(), []
    token.request_graceful()
    with token.watch(lambda: seen.append(token.state)):
        token.request_graceful()
        token.request_immediate()
    assert seen == ["graceful", "immediate"]


def test_a_watcher_that_left_sees_nothing() -> None:
    token, seen = CancellationToken(), []
    with token.watch(lambda: seen.append(1)):
        pass
    token.request_graceful()
    assert seen == []


def test_the_same_callback_can_watch_twice() -> None:
    token, seen = CancellationToken(), []

    def look() -> None:
        seen.append(1)

    with token.watch(look):
        with token.watch(look):
            pass
        token.request_graceful()
    assert seen == [1]


@pytest.mark.parametrize("immediate", [False, True])
async def test_waiting_ends_with_the_stage_waited_for(*, immediate: bool) -> None:
    token = CancellationToken()
    waiting = asyncio.create_task(token.wait(immediate=immediate))
    await asyncio.sleep(0)
    token.request_graceful()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.done() is not immediate
    token.request_immediate()
    await soon(waiting)


def test_a_child_follows_its_parent() -> None:
    parent, child = CancellationToken(), CancellationToken()
    parent.register_child(child)
    parent.request_graceful()
    assert child.is_graceful
    parent.request_immediate()
    assert child.is_immediate


def test_a_child_that_comes_late_catches_up() -> None:
    parent, child = CancellationToken(), CancellationToken()
    parent.request_graceful()
    parent.register_child(child)
    assert child.is_graceful


def test_a_child_that_is_further_than_its_parent_stays_there() -> None:
    parent, child = CancellationToken(), CancellationToken()
    child.request_immediate()
    parent.request_graceful()
    parent.register_child(child)
    assert child.is_immediate


def test_a_child_that_left_and_the_parent_of_a_child_are_not_touched() -> None:
    parent, child = CancellationToken(), CancellationToken()
    parent.register_child(child)
    child.request_immediate()
    assert not parent.is_cancelled
    child.reset()
    parent.unregister_child(child)
    parent.request_graceful()
    assert not child.is_cancelled
