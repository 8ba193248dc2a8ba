"""Wherever a run is interrupted whose hooks inject at every point: history and requests stay valid, and it goes on."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agents import ScriptedTool, call, echo, faults, make_agent, say, soon, use
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from orchestrator_interactive import RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.request_validation import problems_of

if TYPE_CHECKING:
    from agents import Agent

EVENTS = (
    "execution:start",
    "prompt:submit",
    "provider:request",
    "provider:response",
    "tool:pre",
    "tool:post",
    "tool:error",
    "injection:applied",
    "cancel:requested",
    "execution:end",
    "orchestrator:complete",
)


class _Temper:
    """How long everybody takes, and what the hooks wish; the same number is the same temper."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)  # noqa: S311 - nothing secret

    async def dawdle(self, *_: Any) -> None:
        for _step in range(self._random.randrange(4)):
            await asyncio.sleep(0)

    async def wish(self, event: str, data: dict[str, Any]) -> HookResult:
        await self.dawdle()
        if event == "tool:pre" and data["tool_call_id"] == "d" and self._likely():
            return HookResult(action="deny", reason="no")
        return HookResult(
            action="inject_context",
            context_injection=f"noted at {event}",
            context_injection_role=self._random.choice(["system", "user", "assistant"]),
            ephemeral=self._likely(),
            append_to_last_tool_result=self._likely(),
        )

    def _likely(self) -> bool:
        return self._random.random() < 0.5


async def _agent(temper: _Temper) -> Agent:
    batch = call(use("slow", "a"), use("echo", "b"), use("nope", "c"), use("slow", "d"), text="Let me see.")
    tools = [ScriptedTool("slow", temper.dawdle), echo()]
    agent = await make_agent(batch, call(use("slow", "e")), *(say("ok") for _ in range(3)), tools=tools, stop_grace_s=0)
    agent.context.before = agent.context.after = temper.dawdle
    for event in EVENTS:
        agent.hooks.register(event, temper.wish, name="noter")
    return agent


def _interrupt(agent: Agent, run: asyncio.Task[str], how: str) -> None:
    match how:
        case "graceful" | "immediate":
            agent.stop(immediate=how == "immediate")
        case "cancel":
            run.cancel()
        case "steer":
            with suppress(RunFinished):
                agent.inject("more")


async def _goes_on(agent: Agent) -> None:
    agent.hooks.unregister("noter")
    agent.provider._steps.clear()
    agent.provider.add(say("next answer"))
    assert await agent.run("next") == "next answer"


async def _valid(how: str, step: int, number: int) -> None:
    agent = await _agent(_Temper(number))
    run = agent.start()
    for _ in range(step):
        await asyncio.sleep(0)
    _interrupt(agent, run, how)
    await soon(asyncio.wait([run]))
    if not run.cancelled():
        run.result()
    found = faults(await agent.history())
    with capture_logs() as logs:
        await _goes_on(agent)
    assert [refusal for request in agent.provider.requests for refusal in problems_of(request)] == []
    # Cancelled while the calls were committed, before any of them could have a result: the next request says so.
    assert found == [] or (how == "cancel" and all(fault.startswith("call without") for fault in found))
    assert found or "request.repaired" not in {entry["event"] for entry in logs}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["graceful", "immediate", "cancel", "steer"]), st.integers(0, 150), st.integers(0, 1_000_000))
def test_history_and_requests_are_valid_wherever_a_run_is_interrupted(how: str, step: int, number: int) -> None:
    asyncio.run(_valid(how, step, number))
