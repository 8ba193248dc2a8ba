"""The deadlines of waiting states, watched in the session of a conversation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import say
from registry_fixtures import RegistryFixture

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    WaitingState,
)
from orchestrator_interactive.kernel import HookResult

ASKED = (UserMessageState("go"), AgentCallState("beta", "Why?", "c1"))
TIMED_OUT = AgentResultState("c1", {"status": "timeout"})


class Watched:
    """A session over a log, and the overdue waits that its hooks hear of."""

    def __init__(self, fixture: RegistryFixture, stack: InteractionStack, session: Any) -> None:
        self.fixture, self.stack, self.session = fixture, stack, session
        self.overdue: asyncio.Queue[str] = asyncio.Queue()

    async def note(self, _event: str, data: dict[str, Any]) -> HookResult:
        self.overdue.put_nowait(data["waits_for"])
        return HookResult()


@asynccontextmanager
async def watched(*states: Any) -> AsyncIterator[Watched]:
    """Open a session over a log with these states."""
    fixture = RegistryFixture()
    await fixture.add("alpha", say("ok"))
    await InteractionStack(fixture.store, "talk", "alpha").push(*states)
    async with fixture.make.session(await fixture.repository.load("alpha"), "talk", None) as session:
        here = Watched(fixture, session.coordinator.get_capability("interactions.stack"), session)
        session.coordinator.hooks.register("wait:overdue", here.note)
        yield here


async def test_a_request_gets_the_result_timeout_at_its_deadline() -> None:
    async with watched(*ASKED) as here:
        await here.stack.push(WaitingState("agent", time.time() + 0.01, "c1"))
        assert await asyncio.wait_for(here.overdue.get(), 30) == "agent"
        assert await here.stack.current() == TIMED_OUT


async def test_a_run_first_expires_what_an_earlier_process_waited_for() -> None:
    async with watched(*ASKED, WaitingState("agent", time.time() - 1, "c1")) as here:
        assert await here.session.execute("Are you there?") == "ok"
        states = [entry.state for entry in await here.fixture.log("alpha")]
        assert states[3] == TIMED_OUT
        assert [type(state) for state in states[-2:-1]] == [AssistantMessageState]


async def test_a_resumed_run_first_ends_the_requests_that_an_interrupted_tool_call_made() -> None:
    use = {"type": "tool_call", "id": "q", "name": "call_agent", "input": {}}
    called = (AssistantMessageState(content=[use]), ToolCallState("q", "call_agent", {}))
    wait = WaitingState("agent", time.time() + 500, "c1")
    async with watched(UserMessageState("go"), *called, AgentCallState("beta", "Why?", "c1"), wait) as here:
        assert await here.session.resume() == "ok"
        states = [entry.state for entry in await here.fixture.log("alpha")]
        assert states[5] == AgentResultState("c1", {"status": "unknown"})
        assert [type(state) for state in states[6:-1]] == [ToolResultState, AssistantMessageState]
        assert here.overdue.empty()


async def test_a_request_outside_of_tool_calls_stays_open_in_a_resumed_run() -> None:
    async with watched(*ASKED, WaitingState("agent", time.time() + 500, "c1")) as here:
        assert await here.session.resume() == "ok"
        assert await here.fixture.states(AgentResultState, "alpha") == []


async def test_an_answer_in_time_ends_the_wait_and_another_wait_is_reported_once() -> None:
    async with watched(*ASKED) as here:
        deadline = time.time() + 0.01
        await here.stack.push(WaitingState("agent", deadline, "c1"), AgentResultState("c1", "Rain."))
        await here.stack.push(WaitingState("user_input", deadline))
        assert await asyncio.wait_for(here.overdue.get(), 30) == "user_input"
        assert here.overdue.empty()
        assert await here.stack.length() == 5
        assert await here.session.execute("Are you there?") == "ok"
        assert here.overdue.empty()
