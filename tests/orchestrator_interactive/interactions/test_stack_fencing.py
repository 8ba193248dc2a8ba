"""The branches and the fencing tokens of a conversation's log, in every store."""

import pytest
from interaction_states import said

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.branch import checkout, fork, rewind
from orchestrator_interactive.interactions.errors import Fenced


@pytest.fixture
def old(store):
    return InteractionStack(store, "c", "alpha")


@pytest.fixture
def new(store):
    return InteractionStack(store, "c", "alpha")


async def texts_of(stack):
    return [entry.state.text async for entry in stack.iter_last_n(99)]


async def test_a_fenced_owner_changes_nothing(old, new):
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
    assert await texts_of(old) == await texts_of(new) == ["one", "two", "three"]
    assert [branch.name for branch in await old.get_branch_info()] == ["main", "side"]


async def test_a_fenced_push_is_not_repeated_after_a_fork_by_another_owner(old, new):
    await old.fence(1)
    await old.push(said("one"))
    await new.fence(2)
    await new.fork(0, "side")
    with pytest.raises(Fenced):
        await old.push(said("late"))
    assert await texts_of(new) == ["one"]


async def test_a_new_owner_reads_what_the_previous_one_wrote(old, new):
    await old.fence(1)
    assert await new.length() == 0
    await old.push(said("one"))
    await new.fence(2)
    await new.push(said("two"))
    assert await texts_of(new) == ["one", "two"]
    assert new.moves == 1


async def test_an_owner_may_open_the_log_again_with_its_token(old, new):
    await old.fence(3)
    await new.fence(3)
    await new.push(said("one"))
    await old.refresh()
    await old.push(said("two"))
    assert await texts_of(new) == ["one"]


async def test_a_stack_without_a_token_may_write(old, new):
    await old.fence(7)
    await new.push(said("by hand"))
    assert await texts_of(new) == ["by hand"]


async def test_the_functions_change_the_branches_of_a_stack(store) -> None:
    stack = InteractionStack(store, "conversation", "agent_alpha")
    await stack.push(*(said(str(number)) for number in range(12)))
    new_branch_id = await fork(stack, index=10)
    await checkout(stack, "main")
    assert await stack.length() == 12
    await checkout(stack, new_branch_id)
    assert await stack.length() == 11
    await rewind(stack, index=5)
    assert await stack.length() == 6
    assert await fork(stack, index=4, name="my-idea") == "my-idea"
