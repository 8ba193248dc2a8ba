"""Stopping a run while tools run: each call has a result that is true, and none holds the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents import (
    call,
    deaf_tool,
    echo,
    gated,
    goes_on,
    make_agent,
    results,
    returning,
    soon,
    use,
)

from orchestrator_interactive.kernel import HookResult

if TYPE_CHECKING:
    from agents import Agent, ScriptedTool

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600


async def _stopped_in_tools(agent: Agent, tool: ScriptedTool, count: int = 1, *, immediate: bool = False) -> Any:
    run = agent.start()
    await tool.started(count)
    assert agent.stop(immediate=immediate)
    return run


async def test_a_running_tool_may_finish_within_the_grace_period() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a", text="done")), tools=[tool], stop_grace_s=LONG_S)
    run = await _stopped_in_tools(agent, tool)
    gate.set()
    await soon(run)
    assert await results(agent) == {"a": "done"}
    assert len(agent.provider.requests) == 1
    await goes_on(agent)


async def test_after_the_grace_period_a_running_tool_is_cancelled() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=0)
    await soon(await _stopped_in_tools(agent, tool))
    assert tool.cancelled == 1
    assert "unknown" in (await results(agent))["a"]
    await goes_on(agent)


async def test_a_tool_that_waits_for_its_hook_is_not_started() -> None:
    gate, held, tool, other = asyncio.Event(), asyncio.Event(), gated(asyncio.Event(), "first"), echo("second")
    agent = await make_agent(call(use("first", "a"), use("second", "b")), tools=[tool, other], stop_grace_s=LONG_S)

    async def hold_second(_event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "second":
            held.set()
            await gate.wait()
        return HookResult()

    agent.hooks.register("tool:pre", hold_second)
    run = agent.start()
    await tool.started()
    await soon(held.wait())
    agent.stop()
    gate.set()
    agent.stop(immediate=True)
    await soon(run)
    assert other.inputs == []
    found = await results(agent)
    assert "unknown" in found["a"]
    assert "Not started" in found["b"]
    await goes_on(agent)


async def test_a_stop_at_the_announcement_of_a_tool_does_not_start_it() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a")), tools=[tool], stop_grace_s=LONG_S)
    agent.progress.act_on("tool:start", agent.stop)
    await agent.run()
    assert tool.inputs == []
    assert list(await results(agent)) == ["a"]
    await goes_on(agent)


async def test_a_tool_that_never_started_is_not_said_to_have_an_unknown_outcome() -> None:
    tool, gate = echo(), asyncio.Event()
    agent = await make_agent(call(use("echo", "a")), tools=[tool])
    agent.progress.hold("tool:start", gate)
    run = agent.start()
    await agent.progress.reached("tool:start")
    agent.stop(immediate=True)
    await soon(run)
    assert tool.inputs == []
    assert "unknown" not in (await results(agent))["a"]


async def test_a_result_that_a_hook_still_looks_at_is_not_let_past_it() -> None:
    agent = await make_agent(call(use("give", "a")), tools=[returning("secret")])
    agent.events.listen(agent.hooks, "tool:post").hold("tool:post", asyncio.Event())
    run = agent.start()
    await agent.events.reached("tool:post")
    agent.stop(immediate=True)
    await soon(run)
    assert "secret" not in (await results(agent))["a"]
    assert "The call ended" in (await results(agent))["a"]
    assert "secret" not in str(await agent.history())


async def test_an_immediate_stop_cancels_running_tools() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("wait", "b")), tools=[tool], stop_grace_s=LONG_S)
    await soon(await _stopped_in_tools(agent, tool, 2, immediate=True))
    assert tool.cancelled == 2
    assert list(await results(agent)) == ["a", "b"]
    await goes_on(agent)


async def test_a_second_stop_cancels_what_the_first_let_finish() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=LONG_S)
    run = await _stopped_in_tools(agent, tool)
    assert tool.cancelled == 0
    assert agent.stop(immediate=True)
    await soon(run)
    assert tool.cancelled == 1
    await goes_on(agent)


async def test_the_same_stop_twice_changes_nothing() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a", text="done")), tools=[tool], stop_grace_s=LONG_S)
    run = await _stopped_in_tools(agent, tool)
    assert not agent.stop()
    gate.set()
    await soon(run)
    assert await results(agent) == {"a": "done"}


async def test_a_finished_result_stays_when_its_sibling_is_cancelled() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("echo", "b", text="done")), tools=[tool, echo()])
    run = agent.start()
    await tool.started()
    await agent.progress.reached("tool:end")
    agent.stop(immediate=True)
    await soon(run)
    found = await results(agent)
    assert "unknown" in found["a"]
    assert found["b"] == "done"
    await goes_on(agent)


async def test_a_tool_that_finishes_while_it_is_cancelled_keeps_its_result() -> None:
    async def behave(_input: dict[str, Any]) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "rolled back"
        return "unreachable"

    tool = gated(asyncio.Event())
    tool._behave = behave
    agent = await make_agent(call(use("wait", "a")), tools=[tool])
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    assert await results(agent) == {"a": "rolled back"}


async def test_a_deaf_tool_does_not_hold_the_run() -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a")), tools=[tool])
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    assert "unknown" in (await results(agent))["a"]
    await goes_on(agent)
    release.set()


async def test_a_tool_that_was_left_behind_reports_nothing_after_the_run() -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a")), tools=[tool])
    agent.events.listen(agent.hooks, "tool:post", "tool:error")
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    release.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert tool.finished == 1
    assert agent.progress.names()[-1] == "complete"
    assert agent.events.names() == ["tool:error"]


async def test_the_events_of_a_tool_that_was_cut_are_closed() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool])
    agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error")
    await soon(await _stopped_in_tools(agent, tool, immediate=True))
    assert agent.events.names() == ["tool:pre", "tool:error"]
    assert agent.progress.of("tool:end")[0]["success"] is False


async def test_a_stop_after_the_model_was_asked_for_tools_starts_none_and_answers_all() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a"), use("echo", "b")), tools=[tool], stop_grace_s=LONG_S)
    agent.events.listen(agent.hooks, "provider:response").act_on("provider:response", agent.stop)
    await agent.run()
    assert tool.inputs == []
    assert all("Not started" in text for text in (await results(agent)).values())
    await goes_on(agent)


async def test_a_stop_between_tools_and_the_next_call_ends_the_run() -> None:
    agent = await make_agent(call(use("echo", "a")), tools=[echo()])
    agent.progress.act_on("tool:end", agent.stop)
    await agent.run()
    assert len(agent.provider.requests) == 1
    await goes_on(agent)


async def test_a_stop_while_a_person_is_asked_about_a_tool_ends_the_run() -> None:
    asked = asyncio.Event()

    class Nobody:
        async def request_approval(self, *_: Any) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "Deny"

    agent = await make_agent(call(use("echo", "a")), tools=[echo()], approvals=Nobody(), stop_grace_s=LONG_S)
    end = agent.on_hook("tool:pre", HookResult(action="ask_user", approval_prompt="May I?"))
    run = agent.start()
    await soon(asked.wait())
    agent.stop()
    await soon(run)
    end()
    assert "Not started" in (await results(agent))["a"]
    await goes_on(agent)
