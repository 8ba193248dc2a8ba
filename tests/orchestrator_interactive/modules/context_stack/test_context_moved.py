"""A conversation that somebody rewinds, or takes to another branch, while an agent is in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from context_rows import a_coordinator, from_hook, late, said, steer, user
from stack_fixtures import TURN, StackFixture, add

from orchestrator_interactive.interactions.errors import Fenced, WriteConflict
from orchestrator_interactive.interactions.states import AgentCallState, AgentResultState
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.modules import context_stack
from orchestrator_interactive.modules.context_stack import StackContext, StackOptions

Row = dict[str, Any]


@pytest.fixture
def house() -> StackFixture:
    return StackFixture()


async def test_the_next_thing_that_people_say_goes_on_from_there(house: StackFixture) -> None:
    context = house.context()
    await add(context, *TURN)
    await house.stack().rewind(0)
    await add(context, user("Once more."), said("Fine."))
    rows = [user("Hello!"), user("Once more."), said("Fine.")]
    assert await context.get_messages() == rows == await house.context().get_messages()


async def test_so_it_does_on_another_branch(house: StackFixture) -> None:
    context = house.context()
    await add(context, *TURN)
    stack = house.stack()
    await stack.checkout(await stack.fork(0, "short"))
    await add(context, user("Once more."))
    assert await context.get_messages_for_request() == [user("Hello!"), user("Once more.")]


async def test_a_run_that_is_on_ends_with_a_sentence(house: StackFixture) -> None:
    context = house.context()
    await add(context, *TURN[:2])
    await house.stack().rewind(0)
    for row in TURN[2:4]:
        with pytest.raises(WriteConflict, match="changed elsewhere while I was working on it"):
            await context.add_message(row)
    assert await house.context().get_messages() == TURN[:1]


async def test_what_is_said_after_that_is_taken_in(house: StackFixture) -> None:
    context = house.context()
    await add(context, *TURN[:2])
    await house.stack().rewind(0)
    with pytest.raises(WriteConflict):
        await context.add_message(TURN[2])
    await add(context, user("Go on."), said("Yes."))
    assert await context.get_messages() == [TURN[0], user("Go on."), said("Yes.")]


@pytest.mark.parametrize("row", [steer("Faster"), from_hook("Look here"), late("1", "late"), said("And so on.")])
@pytest.mark.parametrize("so_far", [2, 4, 5])
async def test_a_run_that_is_on_takes_nothing_to_another_place(house: StackFixture, row: Row, so_far: int) -> None:
    context = house.context()
    await add(context, *TURN[:so_far])
    await house.stack().rewind(0)
    with pytest.raises(WriteConflict):
        await context.add_message(row)
    assert await house.context().get_messages() == TURN[:1]


async def test_a_run_is_told_even_where_its_tools_have_looked_at_the_log_meanwhile(house: StackFixture) -> None:
    stack = house.stack()
    context = StackContext(StackOptions(), HookRegistry(), stack)
    await add(context, *TURN[:2])
    await house.stack().rewind(0)
    await stack.refresh()
    with pytest.raises(WriteConflict):
        await context.add_message(TURN[2])


async def test_a_run_whose_tool_rewinds_the_conversation_is_told(house: StackFixture) -> None:
    stack = house.stack()
    context = StackContext(StackOptions(), HookRegistry(), stack)
    await add(context, *TURN[:2])
    await stack.rewind(0)
    with pytest.raises(WriteConflict):
        await context.add_message(TURN[2])


async def test_what_tools_push_themselves_is_no_move(house: StackFixture) -> None:
    stack = house.stack()
    context = StackContext(StackOptions(), HookRegistry(), stack)
    await add(context, *TURN[:2])
    await stack.push(AgentCallState("helper", "Look", correlation_id="7"), AgentResultState("7", "Found"))
    await add(context, *TURN[2:])
    assert await house.context().get_messages() == TURN


async def test_whatever_a_run_begins_with_goes_on_from_there(house: StackFixture) -> None:
    context = house.context()
    await add(context, *TURN)
    await house.stack().rewind(0)
    await context.on_run(events.EXECUTION_START, {})
    await add(context, from_hook("Good morning"), user("Once more."))
    assert await house.context().get_messages() == [TURN[0], from_hook("Good morning"), user("Once more.")]


async def test_after_a_run_that_was_stopped_the_next_one_goes_on_from_there() -> None:
    coordinator, house = a_coordinator(), StackFixture()
    coordinator.register_capability("interactions.store", house.store)
    await context_stack.mount(coordinator, {"conversation_id": "c", "agent_id": "a"})
    context = coordinator.get("context")
    await add(context, *TURN[:4])
    await house.stack().rewind(0)
    assert await context.get_messages() == TURN[:4]
    await coordinator.hooks.emit(events.EXECUTION_START, {"prompt": "Once more."})
    assert await context.get_messages() == TURN[:1]
    await add(context, steer("Left behind"), user("Once more."))
    assert await context.get_messages() == [TURN[0], steer("Left behind"), user("Once more.")]


async def test_a_run_that_is_resumed_goes_on_from_there(house: StackFixture) -> None:
    context = house.context()
    await add(context, *TURN[:2])
    await house.stack().rewind(0)
    await context.on_run(events.EXECUTION_START, {"resumed": True})
    assert await context.get_messages() == TURN[:1]
    await add(context, said("Hello."))
    assert await house.context().get_messages() == [TURN[0], said("Hello.")]


async def test_once_it_has_read_where_it_goes_on_it_is_as_any_other(house: StackFixture) -> None:
    context = house.context()
    await add(context, *TURN[:2])
    await context.on_run(events.EXECUTION_START, {"resumed": True})
    assert await context.get_messages() == TURN[:2]
    await house.stack().rewind(0)
    with pytest.raises(WriteConflict, match="changed elsewhere while I was working on it"):
        await context.add_message(TURN[2])
    await context.on_run(events.EXECUTION_START, {"resumed": True})
    await context.get_messages()
    await add(context, said("Hello."))
    assert await house.context().get_messages() == [TURN[0], said("Hello.")]


async def test_another_process_goes_on_with_a_run_where_it_was_killed(house: StackFixture) -> None:
    await add(house.context(), *TURN[:3])
    other = house.context()
    await other.on_run(events.EXECUTION_START, {"resumed": True})
    assert await other.get_messages() == TURN[:3]
    await add(other, *TURN[3:])
    assert await house.context().get_messages() == TURN


@pytest.mark.parametrize("row", [user("Once more."), steer("Faster"), said("And so on.")])
async def test_who_has_lost_the_conversation_writes_nothing_more_not_even_what_a_run_begins_with(
    house: StackFixture, row: Row
) -> None:
    stack = house.stack()
    context = StackContext(StackOptions(), HookRegistry(), stack)
    await stack.fence(1)
    await add(context, *TURN)
    await house.stack().fence(2)
    for _ in range(2):
        with pytest.raises(Fenced):
            await context.add_message(row)
    await context.on_run(events.EXECUTION_START, {})
    with pytest.raises(Fenced):
        await context.add_message(row)
    assert await house.context().get_messages() == TURN


async def test_of_two_processes_one_wins_and_the_other_goes_on_after_it(house: StackFixture) -> None:
    one, other = house.context(), house.context()
    await asyncio.gather(one.get_messages(), other.get_messages())
    await asyncio.gather(one.add_message(user("One")), other.add_message(user("Other")))
    assert await house.context().get_messages() == [user("One"), user("Other")]
