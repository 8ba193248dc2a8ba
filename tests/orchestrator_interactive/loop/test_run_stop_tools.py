"""After a stop during tool calls each call has a true result, and no tool and no hook holds the run."""

import asyncio
from typing import Any

import pytest
from agents.after_run import goes_on, results
from agents.milestones import LONG_S, soon
from agents.provider import call, say, use
from agents.session import Agent, make_agent
from agents.tools import Person, ScriptedTool, deaf_tool, echo, gated, having, returning
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult

ASK = HookResult(action="ask_user", approval_prompt="May it?")
DENY = HookResult(action="deny", reason="secret")


async def test_a_running_tool_may_finish_within_the_grace_period() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a", text="done")), tools=[tool], stop_grace_s=LONG_S)
    run = await agent.in_tool(tool)
    agent.stop()
    assert not agent.stop()
    gate.set()
    await soon(run)
    assert await results(agent) == {"a": "done"}
    assert agent.outcomes() == {"a": "finished"}
    assert len(agent.provider.requests) == 1
    await goes_on(agent)


@pytest.mark.parametrize(("grace_s", "stages"), [(0, [False]), (LONG_S, [True]), (LONG_S, [False, True])])
async def test_at_the_end_of_the_grace_period_or_at_an_immediate_stop_running_tools_are_cancelled(
    grace_s: float, stages: list[bool]
) -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("wait", "b")), tools=[tool], stop_grace_s=grace_s)
    agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error")
    run = await agent.in_tool(tool, 2)
    for immediate in stages:
        assert tool.cancelled == 0
        assert agent.stop(immediate=immediate)
    await soon(run)
    assert tool.cancelled == 2
    assert ["unknown" in text for text in (await results(agent)).values()] == [True, True]
    assert agent.events.names() == ["tool:pre"] * 2 + ["tool:error"] * 2
    assert [data["success"] for data in agent.progress.of("tool:end")] == [False, False]
    await goes_on(agent)


async def test_a_tool_whose_hook_has_not_answered_is_not_started() -> None:
    held, tool, other = asyncio.Event(), gated(asyncio.Event(), "first"), echo("second")
    agent = await make_agent(call(use("first", "a"), use("second", "b")), tools=[tool, other], stop_grace_s=LONG_S)

    async def hold_second(_event: str, data: dict[str, Any]) -> None:
        if data["tool_name"] == "second":
            held.set()
            await asyncio.Event().wait()

    agent.hooks.register("tool:pre", hold_second)
    run = await agent.in_tool(tool)
    await soon(held.wait())
    agent.stop()
    await agent.stopped(run, immediate=True)
    assert other.inputs == []
    found = await results(agent)
    assert "unknown" in found["a"]
    assert "Not started" in found["b"]
    await goes_on(agent)


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_stop_while_the_start_of_a_tool_is_shown_does_not_start_it(*, immediate: bool) -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a")), tools=[tool], stop_grace_s=LONG_S)
    await agent.stopped(await agent.held_at("tool:start"), immediate=immediate)
    assert tool.inputs == []
    assert "unknown" not in (await results(agent))["a"]
    agent.release()
    await goes_on(agent)


async def test_a_stop_between_tools_and_the_next_call_ends_the_run() -> None:
    agent = await make_agent(call(use("echo", "a")), tools=[echo()])
    agent.progress.act_on("tool:end", agent.stop)
    await agent.run()
    assert len(agent.provider.requests) == 1
    await goes_on(agent)


async def test_a_finished_result_stays_when_its_sibling_is_cancelled() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("echo", "b", text="done")), tools=[tool, echo()])
    run = await agent.in_tool(tool)
    await agent.progress.reached("tool:end")
    await agent.stopped(run, immediate=True)
    found = await results(agent)
    assert "unknown" in found["a"]
    assert found["b"] == "done"
    await goes_on(agent)


@pytest.mark.parametrize("how", ["stop", "timeout"])
async def test_a_tool_that_finishes_while_it_is_cancelled_keeps_its_result(how: str) -> None:
    async def roll_back(_input: dict[str, Any]) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "rolled back"
        return "unreachable"

    tool = having(ScriptedTool("write", roll_back), timeout_s=0.01 if how == "timeout" else LONG_S)
    agent = await make_agent(call(use("write", "a")), say("ok"), tools=[tool])
    run = await agent.in_tool(tool)
    await (soon(run) if how == "timeout" else agent.stopped(run, immediate=True))
    assert await results(agent) == {"a": "rolled back"}
    assert agent.outcomes() == {"a": "finished"}


@in_virtual_time
async def test_a_tool_that_ignores_its_cancellation_neither_holds_the_run_nor_reports_after_it() -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a")), tools=[tool])
    agent.events.listen(agent.hooks, "tool:post", "tool:error")
    await agent.stopped(await agent.in_tool(tool), immediate=True)
    assert "unknown" in (await results(agent))["a"]
    release.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert tool.finished == 1
    assert agent.progress.names()[-1] == "complete"
    assert agent.events.names() == ["tool:error"]
    await goes_on(agent)


@pytest.mark.parametrize("immediate", [False, True])
@in_virtual_time
async def test_the_run_ends_after_its_tools_have_cleaned_up(*, immediate: bool) -> None:
    clean_up, order = asyncio.Event(), []

    async def clean_up_slowly(_input: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clean_up.wait()
            order.append("cleaned up")

    tool = ScriptedTool("hang", clean_up_slowly)
    agent = await make_agent(call(use("hang", "a")), tools=[tool], stop_grace_s=0.01)
    agent.events.listen(agent.hooks, "execution:end").act_on("execution:end", lambda: order.append("ended"))
    run = await agent.in_tool(tool)
    asyncio.get_running_loop().call_later(0.05, clean_up.set)
    await agent.stopped(run, immediate=immediate)
    assert order == ["cleaned up", "ended"]


class TestGates:
    """A gate is a hook, or a person whom it asks, that decides about a call."""

    async def _stopped(self, agent: Agent, person: Person, event: str, *, immediate: bool = False) -> None:
        end = agent.on_hook(event, ASK)
        run = agent.start()
        await soon(person.asked.wait())
        await agent.stopped(run, immediate=immediate)
        end()

    async def test_a_call_that_a_person_has_not_allowed_is_not_started(self) -> None:
        person, tool = Person(), echo()
        agent = await make_agent(call(use("echo", "a")), tools=[tool], approvals=person, stop_grace_s=LONG_S)
        await self._stopped(agent, person, "tool:pre")
        assert tool.inputs == []
        assert "Not started" in (await results(agent))["a"]
        await goes_on(agent)

    async def test_a_yes_that_comes_after_the_stop_starts_no_tool(self) -> None:
        class Late(Person):
            async def request_approval(self, *question: Any) -> str:
                try:
                    return await super().request_approval(*question)
                except asyncio.CancelledError:
                    return "Allow"

        person, tool = Late(), echo()
        agent = await make_agent(call(use("echo", "a")), tools=[tool], approvals=person, stop_grace_s=LONG_S)
        await self._stopped(agent, person, "tool:pre")
        assert tool.inputs == []
        await goes_on(agent)

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_result_that_a_person_has_not_allowed_is_withheld(self, *, immediate: bool) -> None:
        person = Person()
        agent = await make_agent(call(use("give", "a")), tools=[returning("hunter2")], approvals=person, stop_grace_s=0)
        await self._stopped(agent, person, "tool:post", immediate=immediate)
        assert "The call ended" in (await results(agent))["a"]
        assert "hunter2" not in str(await agent.history())
        await goes_on(agent)

    async def test_a_result_that_a_hook_still_looks_at_is_withheld(self) -> None:
        agent = await make_agent(call(use("give", "a")), tools=[returning("hunter2")])
        await agent.stopped(await agent.held_at("tool:post"), immediate=True)
        assert "The call ended" in (await results(agent))["a"]
        assert "hunter2" not in str(await agent.history())

    @pytest.mark.parametrize(
        ("decision", "result"),
        [
            (DENY, "The result was withheld: secret"),
            (HookResult(action="modify", data={"tool_result": "[redacted]"}), "[redacted]"),
            (HookResult(), "hunter2"),
        ],
        ids=["deny", "modify", "continue"],
    )
    async def test_a_hook_decides_about_a_result_within_the_grace_period(
        self, decision: HookResult, result: str
    ) -> None:
        agent = await make_agent(call(use("give", "a")), tools=[returning("hunter2")], stop_grace_s=LONG_S)
        gate = asyncio.Event()
        agent.events.listen(agent.hooks, "tool:post").hold("tool:post", gate)
        agent.on_hook("tool:post", decision)
        run = agent.start()
        await agent.events.reached("tool:post")
        agent.stop()
        gate.set()
        await soon(run)
        assert await results(agent) == {"a": result}
        agent.release()

    async def test_injections_of_hooks_about_cancelled_calls_follow_all_results(self) -> None:
        tool = gated(asyncio.Event())
        agent = await make_agent(call(*(use("wait", i) for i in "abc")), tools=[tool])
        agent.on_hook("tool:error", HookResult(action="inject_context", context_injection="noted"))
        await agent.stopped(await agent.in_tool(tool, 3), immediate=True)
        assert [role for role, _ in await agent.told()][2:] == ["tool"] * 3 + ["system"] * 3
        await goes_on(agent)
