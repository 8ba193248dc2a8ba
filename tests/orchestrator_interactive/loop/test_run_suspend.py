"""A suspended run ends at its next boundary, and another one resumes it as if nothing had happened."""

import asyncio
from typing import Any

import pytest
from agents.after_run import delivered, goes_on, late_results, results
from agents.milestones import soon
from agents.provider import call, doing, fail, never, say, streaming, use
from agents.session import Agent, make_agent
from agents.tools import echo, gated, having
from loop_rows import STILL_RUNNING, UNKNOWN_OUTCOME

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock

GO = [("user", "go")]
NOTHING_LOST = {"unknown": [], "retried": [], "tools": []}


def suspend(agent: Agent) -> bool:
    suspended: bool = agent.coordinator.get_capability("orchestrator.suspend")()
    return suspended


async def suspended(agent: Agent, run: asyncio.Task[str]) -> None:
    """Suspend a run that ends at once."""
    assert suspend(agent)
    assert await soon(run) == ""
    assert agent.complete()["status"] == "suspended"


async def resumed(agent: Agent, *steps: Any) -> str:
    agent.provider.drop_the_rest()
    agent.provider.add(*steps)
    return await soon(agent.session.resume(on_progress=agent.progress))


class TestTheModelCall:
    async def test_an_answer_in_flight_is_given_up_and_nothing_of_it_stays(self) -> None:
        agent = await make_agent(streaming("Half an ", then=never()))
        await suspended(agent, await agent.asked())
        assert await agent.told() == GO
        assert agent.shown() == []
        assert agent.provider.cancelled == 1
        assert await resumed(agent, say("Whole.")) == "Whole."
        assert await agent.told() == [*GO, ("assistant", "Whole.")]

    async def test_an_answer_that_came_at_the_same_instant_is_given_up_too(self) -> None:
        agent = await make_agent()
        agent.provider.add(doing(lambda: suspend(agent), say("Whole.")))
        assert await agent.run() == ""
        assert await agent.told() == GO

    async def test_calls_that_had_started_early_are_dropped(self) -> None:
        look = having(gated(asyncio.Event(), "look"), side_effect_free=True)
        agent = await make_agent(streaming(ToolCallBlock(id="a", name="look", input={}), then=never()), tools=[look])
        await suspended(agent, await agent.in_tool(look))
        assert look.cancelled == 1
        assert await agent.told() == GO
        assert agent.progress.of("tool:start")[0]["id"] == agent.progress.of("tool:end")[0]["id"]

    async def test_the_first_part_of_a_truncated_answer_is_shown_with_the_rest(self) -> None:
        agent = await make_agent(say("One, ", finish_reason="max_tokens"), never())
        await suspended(agent, await agent.asked(2))
        assert agent.shown() == []
        assert await resumed(agent, say("two.")) == "One, two."
        assert [data["part"] for data in agent.progress.of("complete")] == [1, 1]

    async def test_a_retry_is_not_waited_for(self) -> None:
        agent = await make_agent(fail(ProviderUnavailableError("down")), retry_base_delay_s=1000)
        run = agent.start()
        await agent.progress.reached("retrying")
        await suspended(agent, run)

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
    async def test_hooks_are_not_waited_for(self, event: str) -> None:
        agent = await make_agent(say("ok"))
        await suspended(agent, await agent.held_at(event))
        assert await agent.told() == ([] if event == "prompt:submit" else GO)


class TestTools:
    async def test_all_calls_of_a_committed_answer_run_to_their_end(self) -> None:
        gate = asyncio.Event()
        tools = [gated(gate, "slow"), echo("do")]
        agent = await make_agent(call(use("slow", "a"), use("do", "b")), tools=tools)
        agent.progress.act_on("tool:start", lambda: suspend(agent))
        run = await agent.in_tool(tools[0])
        gate.set()
        assert await soon(run) == ""
        assert await results(agent) == {"a": "slow", "b": "do"}
        assert agent.complete()["status"] == "suspended"
        assert await resumed(agent, say("ok")) == "ok"
        assert [len(tool.inputs) for tool in tools] == [1, 1]
        assert agent.progress.of("resumed") == [NOTHING_LOST]

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_cancels_them_and_the_run_stays_suspended(self, *, immediate: bool) -> None:
        slow = gated(asyncio.Event(), "slow")
        agent = await make_agent(call(use("slow", "a")), tools=[slow], stop_grace_s=0)
        run = await agent.in_tool(slow)
        suspend(agent)
        assert await agent.stopped(run, immediate=immediate) == ""
        assert await results(agent) == {"a": UNKNOWN_OUTCOME}
        assert agent.complete()["status"] == "suspended"
        lost = [{"tool": "slow", "id": "a", "label": None, "outcome": "unknown"}]
        assert agent.complete()["tools"] == lost
        assert await resumed(agent, say("ok")) == "ok"
        assert agent.progress.of("resumed") == [{"unknown": ["slow"], "retried": [], "tools": lost}]
        await goes_on(agent)

    async def test_a_call_whose_result_was_to_follow_is_waited_for(self) -> None:
        gate = asyncio.Event()
        slow = gated(gate, "slow")
        agent = await make_agent(call(use("slow", "a")), say("Meanwhile."), tools=[slow])
        run = await agent.in_tool(slow)
        agent.inject("!now")
        await agent.progress.reached("text")
        suspend(agent)
        gate.set()
        assert await soon(run) == ""
        assert await results(agent) == {"a": STILL_RUNNING}
        assert [row["metadata"]["results"] for row in await late_results(agent)] == [["a"]]
        assert await resumed(agent, say("ok")) == "ok"
        assert agent.progress.of("resumed") == [NOTHING_LOST]

    async def test_a_call_whose_hook_has_not_answered_is_waited_for(self) -> None:
        agent, gate = await make_agent(call(use("do", "a")), tools=[echo("do")]), asyncio.Event()
        agent.events.listen(agent.hooks, "tool:pre").hold("tool:pre", gate)
        run = agent.start()
        await agent.events.reached("tool:pre")
        suspend(agent)
        gate.set()
        assert await soon(run) == ""
        assert await results(agent) == {"a": "do"}


async def test_pending_messages_can_be_withdrawn_and_injected_again_and_later_ones_are_refused() -> None:
    agent = await make_agent(never())
    await suspended(agent, await agent.steered(Injection("more", id="m1")))
    assert agent.complete()["waiting"] == 1
    with pytest.raises(RunFinished):
        agent.inject("more")
    assert agent.withdraw("m1")
    assert [each.state for each in agent.receipts()] == ["withdrawn"]
    agent.progress.act_on("executing", lambda: agent.inject(Injection("more", id="m1")))
    await resumed(agent, say("ok"))
    assert await delivered(agent) == ["m1"]
    assert [(each.id, each.state) for each in agent.receipts()] == [("m1", "delivered")]


class TestWhetherARunIsSuspended:
    async def test_without_a_run_it_does_nothing(self) -> None:
        agent = await make_agent(say("ok"))
        assert not suspend(agent)
        assert await agent.run() == "ok"
        assert not suspend(agent)

    async def test_a_second_time_it_does_nothing(self) -> None:
        agent = await make_agent(never())
        run = await agent.asked()
        assert [suspend(agent), suspend(agent)] == [True, False]
        await soon(run)

    async def test_a_run_that_is_being_stopped_is_not_suspended(self) -> None:
        agent = await make_agent(streaming("Half", then=never()))
        run = await agent.asked()
        agent.stop()
        assert not suspend(agent)
        assert await soon(run) == "Half"
        assert agent.complete()["status"] == "cancelled"

    async def test_a_run_that_has_its_answer_is_not_suspended(self) -> None:
        agent, outcomes = await make_agent(say("ok")), []
        agent.events.listen(agent.hooks, "execution:end")
        agent.events.act_on("execution:end", lambda: outcomes.append(suspend(agent)))
        assert await agent.run() == "ok"
        assert outcomes == [False]
        assert agent.complete()["status"] == "success"

    async def test_a_run_whose_answer_is_just_committed_returns_it_when_it_is_resumed(self) -> None:
        agent = await make_agent(say("ok"))
        agent.context.act("after", lambda row: row["role"] == "assistant" and suspend(agent))
        assert await agent.run() == ""
        assert agent.complete()["status"] == "suspended"
        assert await resumed(agent) == "ok"

    async def test_a_resumed_run_can_be_suspended_before_it_does_anything(self) -> None:
        agent = await make_agent()
        await agent.context.set_messages([{"role": "user", "content": "go"}])
        agent.progress.act_on("executing", lambda: suspend(agent))
        assert await resumed(agent) == ""
        assert agent.complete()["status"] == "suspended"
        assert await agent.told() == GO

    async def test_hooks_learn_that_the_run_is_incomplete(self) -> None:
        agent = await make_agent(never())
        agent.events.listen(agent.hooks, "execution:end", "orchestrator:complete", "cancel:requested")
        ephemeral = HookResult(action="inject_context", context_injection="Mind", ephemeral=True)
        agent.on_hook("prompt:submit", ephemeral)
        await suspended(agent, await agent.asked())
        statuses = [(event, data["status"]) for event, data in agent.events.seen]
        assert statuses == [("execution:end", "cancelled"), ("orchestrator:complete", "incomplete")]
        assert not agent.token.is_cancelled
        assert await resumed(agent, say("ok")) == "ok"
        await goes_on(agent)
