"""A conversation that is rewound or moved to another branch while an agent uses it."""

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
def fixture() -> StackFixture:
    return StackFixture()


async def test_the_next_prompt_continues_after_a_rewind(fixture: StackFixture) -> None:
    context = fixture.context()
    await add(context, *TURN)
    await fixture.stack().rewind(0)
    await add(context, user("Once more."), said("Fine."))
    rows = [user("Hello!"), user("Once more."), said("Fine.")]
    assert await context.get_messages() == rows == await fixture.context().get_messages()


async def test_the_next_prompt_continues_on_another_branch(fixture: StackFixture) -> None:
    context = fixture.context()
    await add(context, *TURN)
    stack = fixture.stack()
    await stack.checkout(await stack.fork(0, "short"))
    await add(context, user("Once more."))
    assert await context.get_messages_for_request() == [user("Hello!"), user("Once more.")]


async def test_a_moved_run_gets_a_conflict_and_the_next_prompt_continues(fixture: StackFixture) -> None:
    context = fixture.context()
    await add(context, *TURN[:2])
    await fixture.stack().rewind(0)
    for row in TURN[2:4]:
        with pytest.raises(WriteConflict, match="changed elsewhere while I was working on it"):
            await context.add_message(row)
    assert await fixture.context().get_messages() == TURN[:1]
    await add(context, user("Go on."), said("Yes."))
    assert await context.get_messages() == [TURN[0], user("Go on."), said("Yes.")]


@pytest.mark.parametrize("row", [steer("Faster"), from_hook("Look here"), late("1", "late"), said("And so on.")])
@pytest.mark.parametrize("so_far", [2, 4, 5])
async def test_a_moved_run_writes_nothing(fixture: StackFixture, row: Row, so_far: int) -> None:
    context = fixture.context()
    await add(context, *TURN[:so_far])
    await fixture.stack().rewind(0)
    with pytest.raises(WriteConflict):
        await context.add_message(row)
    assert await fixture.context().get_messages() == TURN[:1]


async def test_a_moved_run_gets_a_conflict_even_after_a_refresh(fixture: StackFixture) -> None:
    stack = fixture.stack()
    context = StackContext(StackOptions(), HookRegistry().emit, stack)
    await add(context, *TURN[:2])
    await fixture.stack().rewind(0)
    await stack.refresh()
    with pytest.raises(WriteConflict):
        await context.add_message(TURN[2])


async def test_states_pushed_by_tools_are_no_move(fixture: StackFixture) -> None:
    stack = fixture.stack()
    context = StackContext(StackOptions(), HookRegistry().emit, stack)
    await add(context, *TURN[:2])
    await stack.push(AgentCallState("helper", "Look", correlation_id="7"), AgentResultState("7", "Found"))
    await add(context, *TURN[2:])
    assert await fixture.context().get_messages() == TURN


async def test_the_first_row_of_a_run_continues_after_a_rewind(fixture: StackFixture) -> None:
    context = fixture.context()
    await add(context, *TURN)
    await fixture.stack().rewind(0)
    await context.on_run(events.EXECUTION_START, {})
    await add(context, from_hook("Good morning"), user("Once more."))
    assert await fixture.context().get_messages() == [TURN[0], from_hook("Good morning"), user("Once more.")]


async def test_the_run_after_a_stopped_one_continues_after_a_rewind() -> None:
    coordinator, fixture = a_coordinator(), StackFixture()
    coordinator.register_capability("interactions.store", fixture.store)
    await context_stack.mount(coordinator, {"conversation_id": "c", "agent_id": "a"})
    context = coordinator.get("context")
    await add(context, *TURN[:4])
    await fixture.stack().rewind(0)
    assert await context.get_messages() == TURN[:4]
    await coordinator.hooks.emit(events.EXECUTION_START, {"prompt": "Once more."})
    assert await context.get_messages() == TURN[:1]
    await add(context, steer("Left behind"), user("Once more."))
    assert await context.get_messages() == [TURN[0], steer("Left behind"), user("Once more.")]


async def test_a_resumed_run_continues_after_a_rewind(fixture: StackFixture) -> None:
    context = fixture.context()
    await add(context, *TURN[:2])
    await fixture.stack().rewind(0)
    await context.on_run(events.EXECUTION_START, {"resumed": True})
    assert await context.get_messages() == TURN[:1]
    await add(context, said("Hello."))
    assert await fixture.context().get_messages() == [TURN[0], said("Hello.")]


async def test_a_resumed_run_gets_a_conflict_after_a_later_rewind(fixture: StackFixture) -> None:
    context = fixture.context()
    await add(context, *TURN[:2])
    await context.on_run(events.EXECUTION_START, {"resumed": True})
    assert await context.get_messages() == TURN[:2]
    await fixture.stack().rewind(0)
    with pytest.raises(WriteConflict, match="changed elsewhere while I was working on it"):
        await context.add_message(TURN[2])
    await context.on_run(events.EXECUTION_START, {"resumed": True})
    await context.get_messages()
    await add(context, said("Hello."))
    assert await fixture.context().get_messages() == [TURN[0], said("Hello.")]


async def test_another_process_continues_a_killed_run(fixture: StackFixture) -> None:
    await add(fixture.context(), *TURN[:3])
    other = fixture.context()
    await other.on_run(events.EXECUTION_START, {"resumed": True})
    assert await other.get_messages() == TURN[:3]
    await add(other, *TURN[3:])
    assert await fixture.context().get_messages() == TURN


@pytest.mark.parametrize("row", [user("Once more."), steer("Faster"), said("And so on.")])
async def test_a_fenced_context_writes_nothing(fixture: StackFixture, row: Row) -> None:
    stack = fixture.stack()
    context = StackContext(StackOptions(), HookRegistry().emit, stack)
    await stack.fence(1)
    await add(context, *TURN)
    await fixture.stack().fence(2)
    for _ in range(2):
        with pytest.raises(Fenced):
            await context.add_message(row)
    await context.on_run(events.EXECUTION_START, {})
    with pytest.raises(Fenced):
        await context.add_message(row)
    assert await fixture.context().get_messages() == TURN


async def test_prompts_of_two_processes_are_both_written(fixture: StackFixture) -> None:
    one, other = fixture.context(), fixture.context()
    await asyncio.gather(one.get_messages(), other.get_messages())
    await asyncio.gather(one.add_message(user("One")), other.add_message(user("Other")))
    assert await fixture.context().get_messages() == [user("One"), user("Other")]
