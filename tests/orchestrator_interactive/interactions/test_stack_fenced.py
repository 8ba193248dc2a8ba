"""A conversation's log has one owner at a time, over all processes: who comes later keeps the others out."""

from __future__ import annotations

import pytest
from interaction_states import said

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import Fenced


@pytest.fixture
def old(store):
    return InteractionStack(store, "c", "alpha")


@pytest.fixture
def new(store):
    return InteractionStack(store, "c", "alpha")


async def _texts(stack):
    return [entry.state.text async for entry in stack.iter_last_n(99)]


async def test_whoever_was_fenced_off_changes_nothing_any_more(old, new):
    await old.fence(1)
    await old.push(said("one"), said("two"))
    await old.fork(0, "side")
    await new.fence(2)
    for change in (
        old.push(said("late")),
        old.pop(),
        old.rewind(0),
        old.restart(said("late")),
        old.fork(),
        old.checkout("side"),
        old.prune(["side"]),
    ):
        with pytest.raises(Fenced, match="Another owner has taken over conversation c of alpha"):
            await change
    await new.push(said("three"))
    assert await _texts(old) == await _texts(new) == ["one", "two", "three"]
    assert [branch.name for branch in await old.get_branch_info()] == ["main", "side"]


async def test_a_push_is_not_tried_again_over_somebody_elses_fork_once_it_was_fenced_off(old, new):
    await old.fence(1)
    await old.push(said("one"))
    await new.fence(2)
    await new.fork(0, "side")
    with pytest.raises(Fenced):
        await old.push(said("late"))
    assert await _texts(new) == ["one"]


async def test_a_lower_token_is_refused_and_writes_nothing_afterwards(old, new):
    await new.fence(2)
    with pytest.raises(Fenced):
        await old.fence(1)
    with pytest.raises(Fenced):
        await old.push(said("late"))
    assert await new.length() == 0


async def test_an_owner_sees_what_the_one_before_it_wrote(old, new):
    await old.fence(1)
    assert await new.length() == 0
    await old.push(said("one"))
    await new.fence(2)
    await new.push(said("two"))
    assert await _texts(new) == ["one", "two"]
    assert new.moves == 1


async def test_the_same_owner_may_come_again_with_its_own_token(old, new):
    await old.fence(3)
    await new.fence(3)
    await new.push(said("one"))
    await old.refresh()
    await old.push(said("two"))
    assert await _texts(new) == ["one"]


async def test_who_names_no_token_is_not_asked_for_one(old, new):
    await old.fence(7)
    await new.push(said("by hand"))
    assert await _texts(new) == ["by hand"]
