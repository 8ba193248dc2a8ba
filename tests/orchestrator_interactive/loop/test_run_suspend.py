"""A run that is suspended ends at its next boundary, and another one goes on as if nothing had happened."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedTool,
    call,
    delivered,
    doing,
    echo,
    fail,
    gated,
    goes_on,
    having,
    late_results,
    make_agent,
    never,
    results,
    say,
    soon,
    streaming,
    use,
)

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock
from orchestrator_interactive.loop.tool_results import STILL_RUNNING, UNKNOWN_OUTCOME


def suspend(agent: Agent) -> bool:
    suspended: bool = agent.coordinator.get_capability("orchestrator.suspend")()
    return suspended


def status(agent: Agent) -> str:
    told: str = agent.progress.of("complete")[-1]["status"]
    return told


async def resumed(agent: Agent, *steps: Any) -> str:
    agent.provider.drop_the_rest()
    agent.provider.add(*steps)
    return await soon(agent.session.resume(on_progress=agent.progress))


async def _asked(agent: Agent, number: int = 1) -> asyncio.Task[str]:
    run = agent.start()
    await agent.provider.asked(number)
    return run


class TestTheModel:
    async def test_its_answer_in_flight_is_given_up_and_nothing_of_it_stays(self) -> None:
        agent = await make_agent(streaming("Half an ", then=never()))
        run = await _asked(agent)
        assert suspend(agent)
        assert await soon(run) == ""
        assert status(agent) == "suspended"
        assert await agent.told() == [("user", "go")]
        assert agent.progress.of("text") == []
        assert agent.provider.cancelled == 1
        assert await resumed(agent, say("Whole.")) == "Whole."
        assert await agent.told() == [("user", "go"), ("assistant", "Whole.")]

    async def test_one_that_came_at_the_same_instant_is_given_up_too(self) -> None:
        agent = await make_agent()
        agent.provider.add(doing(lambda: suspend(agent), say("Whole.")))
        assert await agent.run() == ""
        assert await agent.told() == [("user", "go")]

    async def test_calls_that_had_begun_early_are_dropped(self) -> None:
        look = having(gated(asyncio.Event(), "look"), side_effect_free=True)
        agent = await make_agent(streaming(ToolCallBlock(id="a", name="look", input={}), then=never()), tools=[look])
        run = agent.start()
        await look.started()
        suspend(agent)
        await soon(run)
        assert look.cancelled == 1
        assert await agent.told() == [("user", "go")]
        assert agent.progress.of("tool:start")[0]["id"] == agent.progress.of("tool:end")[0]["id"]

    async def test_the_beginning_of_a_long_answer_is_told_with_its_rest(self) -> None:
        agent = await make_agent(say("One, ", finish_reason="max_tokens"), never())
        run = await _asked(agent, 2)
        suspend(agent)
        await soon(run)
        assert agent.progress.of("text") == []
        assert await resumed(agent, say("two.")) == "One, two."
        assert [told["part"] for told in agent.progress.of("complete")] == [1, 1]

    async def test_nobody_waits_for_a_provider_that_is_away(self) -> None:
        agent = await make_agent(fail(ProviderUnavailableError("down")), retry_base_delay_s=1000)
        run = agent.start()
        await agent.progress.reached("retrying")
        suspend(agent)
        assert await soon(run) == ""
        assert status(agent) == "suspended"

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
    async def test_nobody_waits_for_hooks_that_think_about_it(self, event: str) -> None:
        agent = await make_agent(say("ok"))
        agent.events.listen(agent.hooks, event).hold(event, asyncio.Event())
        run = agent.start()
        await agent.events.reached(event)
        suspend(agent)
        assert await soon(run) == ""
        assert await agent.told() == ([] if event == "prompt:submit" else [("user", "go")])


class TestTools:
    async def test_those_of_an_answer_that_stands_all_run_to_their_end(self) -> None:
        gate = asyncio.Event()
        tools = [gated(gate, "slow"), echo("do")]
        agent = await make_agent(call(use("slow", "a"), use("do", "b")), tools=tools)
        agent.progress.act_on("tool:start", lambda: suspend(agent))
        run = agent.start()
        await tools[0].started()
        gate.set()
        assert await soon(run) == ""
        assert await results(agent) == {"a": "slow", "b": "do"}
        assert status(agent) == "suspended"
        assert len(agent.provider.requests) == 1
        assert await resumed(agent, say("ok")) == "ok"
        assert [len(tool.inputs) for tool in tools] == [1, 1]
        assert agent.progress.of("resumed") == [{"unknown": [], "retried": [], "tools": []}]

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_cuts_them_and_it_stays_a_suspension(self, *, immediate: bool) -> None:
        slow = gated(asyncio.Event(), "slow")
        agent = await make_agent(call(use("slow", "a")), tools=[slow], stop_grace_s=0)
        run = agent.start()
        await slow.started()
        suspend(agent)
        agent.stop(immediate=immediate)
        assert await soon(run) == ""
        assert await results(agent) == {"a": UNKNOWN_OUTCOME}
        assert status(agent) == "suspended"
        told = agent.progress.of("complete")[0]["tools"]
        assert told == [{"tool": "slow", "id": "a", "label": None, "outcome": "unknown"}]
        assert await resumed(agent, say("ok")) == "ok"
        assert agent.progress.of("resumed") == [{"unknown": ["slow"], "retried": [], "tools": told}]
        await goes_on(agent)

    async def test_one_whose_result_was_to_follow_is_waited_for(self) -> None:
        gate = asyncio.Event()
        slow = gated(gate, "slow")
        agent = await make_agent(call(use("slow", "a")), say("Meanwhile."), tools=[slow])
        run = agent.start()
        await slow.started()
        agent.inject("!now")
        await agent.progress.reached("text")
        suspend(agent)
        gate.set()
        assert await soon(run) == ""
        assert await results(agent) == {"a": STILL_RUNNING}
        assert [row["metadata"]["results"] for row in await late_results(agent)] == [["a"]]
        assert await resumed(agent, say("ok")) == "ok"
        assert agent.progress.of("resumed") == [{"unknown": [], "retried": [], "tools": []}]

    async def test_one_that_waits_to_be_allowed_is_waited_for(self) -> None:
        agent = await make_agent(call(use("do", "a")), tools=[echo("do")])
        gate = asyncio.Event()
        agent.events.listen(agent.hooks, "tool:pre").hold("tool:pre", gate)
        run = agent.start()
        await agent.events.reached("tool:pre")
        suspend(agent)
        gate.set()
        assert await soon(run) == ""
        assert await results(agent) == {"a": "do"}


class TestMessages:
    async def test_those_that_wait_can_be_taken_back_and_given_again(self) -> None:
        agent = await make_agent(never())
        run = await _asked(agent)
        agent.inject(Injection("more", id="m1"))
        suspend(agent)
        await soon(run)
        assert agent.progress.of("complete")[0]["waiting"] == 1
        assert agent.withdraw("m1")
        assert agent.receipts() == ()
        agent.progress.act_on("executing", lambda: agent.inject(Injection("more", id="m1")))
        await resumed(agent, say("ok"))
        assert await delivered(agent) == ["m1"]
        assert [(each.id, each.state) for each in agent.receipts()] == [("m1", "delivered")]

    async def test_one_that_comes_later_is_refused(self) -> None:
        agent = await make_agent(never())
        run = await _asked(agent)
        suspend(agent)
        await soon(run)
        with pytest.raises(RunFinished):
            agent.inject("more")


class TestWhatItChanges:
    async def test_without_a_run_it_does_nothing(self) -> None:
        agent = await make_agent(say("ok"))
        assert not suspend(agent)
        assert await agent.run() == "ok"
        assert not suspend(agent)

    async def test_once_is_enough(self) -> None:
        agent = await make_agent(never())
        run = await _asked(agent)
        assert [suspend(agent), suspend(agent)] == [True, False]
        await soon(run)

    async def test_a_run_that_is_being_stopped_is_not_suspended(self) -> None:
        agent = await make_agent(streaming("Half", then=never()))
        run = await _asked(agent)
        agent.stop()
        assert not suspend(agent)
        assert await soon(run) == "Half"
        assert status(agent) == "cancelled"

    async def test_a_run_that_has_its_answer_is_not_suspended(self) -> None:
        agent = await make_agent(say("ok"))
        said: list[bool] = []
        agent.events.listen(agent.hooks, "execution:end").act_on("execution:end", lambda: said.append(suspend(agent)))
        assert await agent.run() == "ok"
        assert said == [False]
        assert status(agent) == "success"

    async def test_one_whose_answer_stands_already_returns_it_to_whoever_resumes_it(self) -> None:
        agent = await make_agent(say("ok"))

        async def as_it_is_written(row: dict[str, Any]) -> None:
            if row["role"] == "assistant":
                suspend(agent)

        agent.context.after = as_it_is_written
        assert await agent.run() == ""
        assert status(agent) == "suspended"
        assert await resumed(agent) == "ok"

    async def test_a_run_that_was_just_resumed_can_be_suspended_before_it_does_anything(self) -> None:
        look: ScriptedTool = having(echo("look"), side_effect_free=True)
        agent = await make_agent(call(use("look", "a")), tools=[look])
        await agent.context.set_messages([{"role": "user", "content": "go"}])
        agent.progress.act_on("executing", lambda: suspend(agent))
        assert await resumed(agent) == ""
        assert status(agent) == "suspended"
        assert await agent.told() == [("user", "go")]

    async def test_hooks_hear_of_an_end_that_is_none_of_completion(self) -> None:
        agent = await make_agent(never())
        agent.events.listen(agent.hooks, "execution:end", "orchestrator:complete", "cancel:requested")
        run = await _asked(agent)
        suspend(agent)
        await soon(run)
        assert [(event, data["status"]) for event, data in agent.events.seen] == [
            ("execution:end", "cancelled"),
            ("orchestrator:complete", "incomplete"),
        ]
        assert not agent.token.is_cancelled

    async def test_what_a_hook_wished_for_the_next_request_is_not_in_the_way(self) -> None:
        agent = await make_agent(never())
        agent.on_hook("prompt:submit", HookResult(action="inject_context", context_injection="Mind", ephemeral=True))
        run = await _asked(agent)
        suspend(agent)
        await soon(run)
        assert await resumed(agent, say("ok")) == "ok"
        await goes_on(agent)
