"""The options of a run: its limits, and the tools after which the model must answer in text."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from agents.milestones import soon
from agents.provider import ScriptedProvider, after, call, doing, fail, say, use
from agents.rows import faults, text_of
from agents.session import Agent, make_agent
from agents.tools import deaf_tool, echo, gated
from virtual_time import in_virtual_time

from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import Usage


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, 0) for name in ("max_iterations", "max_tokens", "max_cost_usd", "max_duration_s", "max_waiting")),
        *((name, 0) for name in ("stall_timeout_s", "tool_timeout_s")),
        ("max_result_chars", 99),
        ("stop_grace_s", -1),
        ("max_iterations", "many"),
        ("typo", 1),
    ],
)
def test_an_invalid_option_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        InteractiveOrchestrator({option: value})


USED = Usage(input_tokens=70, output_tokens=30, total_tokens=100, cost_usd=Decimal("0.04"))


def look(call_id: str) -> Any:
    return call(use("echo", call_id), usage=USED)


def _ending(agent: Agent) -> tuple[str, str | None]:
    return agent.complete()["status"], agent.complete().get("reason")


def _choices(agent: Agent) -> list[Any]:
    return [request.tool_choice if request.tools else "no tools" for request in agent.provider.requests]


# Each is reached by the second answer.
@pytest.mark.parametrize("limit", [{"max_iterations": 2}, {"max_tokens": 200}, {"max_cost_usd": "0.08"}], ids=str)
class TestEveryLimit:
    @pytest.mark.parametrize("tool_choice", [True, False])
    async def test_it_ends_the_run_with_one_answer_without_tools(
        self, limit: dict[str, Any], *, tool_choice: bool
    ) -> None:
        provider = ScriptedProvider(look("a"), look("b"), say("so far"), tool_choice=tool_choice)
        agent = await make_agent(provider=provider, tools=[echo()], **limit)
        agent.events.listen(agent.hooks, "orchestrator:complete", "execution:end")
        assert await agent.run() == "so far"
        assert _choices(agent) == [None, None, "none" if tool_choice else "no tools"]
        assert provider.prefix_breaks() == []
        assert _ending(agent) == ("incomplete", next(iter(limit)))
        assert [data["status"] for _, data in agent.events.seen] == ["completed", "incomplete"]

    async def test_a_text_answer_that_reaches_it_is_the_answer(self, limit: dict[str, Any]) -> None:
        agent = await make_agent(look("a"), say("done", usage=USED), tools=[echo()], **limit)
        assert await agent.run() == "done"
        assert _ending(agent) == ("success", None)

    async def test_tools_that_the_last_answer_calls_all_the_same_are_not_run(self, limit: dict[str, Any]) -> None:
        tool = echo()
        last = call(use("echo", "c"), text="still")
        agent = await make_agent(look("a"), look("b"), last, tools=[tool], **limit)
        assert await agent.run() == "still"
        assert len(tool.inputs) == 2
        assert faults(await agent.history()) == []

    async def test_what_is_written_during_the_last_answer_is_answered_too(self, limit: dict[str, Any]) -> None:
        agent = await make_agent(tools=[echo()], **limit)
        agent.provider.add(look("a"), look("b"), doing(lambda: agent.inject("and?"), say("so far")), say("that"))
        assert await agent.run() == "that"
        assert _choices(agent) == [None, None, "none", "none"]
        assert agent.shown() == ["so far"]
        assert _ending(agent) == ("incomplete", next(iter(limit)))

    async def test_the_last_answer_may_be_repeated_and_continued(self, limit: dict[str, Any]) -> None:
        last = (fail(errors.ProviderUnavailableError("down")), say("so ", finish_reason="max_tokens"), say("far"))
        agent = await make_agent(look("a"), look("b"), *last, tools=[echo()], retry_base_delay_s=0, **limit)
        assert await agent.run() == "so far"
        assert _choices(agent)[2:] == ["none"] * 3
        assert _ending(agent) == ("incomplete", next(iter(limit)))

    async def test_a_tool_that_still_runs_is_waited_for_and_its_result_answered(self, limit: dict[str, Any]) -> None:
        gate = asyncio.Event()
        slow = gated(gate, "slow")
        steps = (call(use("slow", "a", text="found"), usage=USED), look("b"), say("wait"), say("there it is"))
        agent = await make_agent(*steps, tools=[slow, echo()], **limit)
        agent.progress.act_on("text", gate.set)
        run = await agent.in_tool(slow)
        agent.inject("!and b")
        assert await soon(run) == "there it is"
        assert agent.shown() == ["wait"]
        assert "found" in text_of(agent.provider.sent()[-1])
        assert _choices(agent) == [None, None, "none", "none"]

    async def test_the_next_run_has_as_much_again(self, limit: dict[str, Any]) -> None:
        agent = await make_agent(look("a"), look("b"), say("so far"), tools=[echo()], **limit)
        await agent.run()
        agent.provider.add(look("c"), say("done"))
        assert await agent.run("go on") == "done"
        assert _ending(agent) == ("success", None)


class TestCounting:
    @pytest.mark.parametrize(("max_tokens", "choices"), [(100, [None, "none"]), (101, [None, None])])
    async def test_tokens_are_those_read_and_those_written(self, max_tokens: int, choices: list[Any]) -> None:
        agent = await make_agent(look("a"), say("so far"), tools=[echo()], max_tokens=max_tokens)
        await agent.run()
        assert _choices(agent) == choices

    async def test_usage_that_the_provider_does_not_report_reaches_no_limit(self) -> None:
        silent = call(use("echo", "a"), usage=None)
        free = call(use("echo", "b"), usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2))
        agent = await make_agent(silent, free, say("done"), tools=[echo()], max_cost_usd="0.01", max_tokens=10)
        assert await agent.run() == "done"
        assert _ending(agent) == ("success", None)

    async def test_a_forced_answer_at_the_limit_is_one_answer(self) -> None:
        dispatch = call(use("dispatch_worker", "a"), usage=USED)
        agent = await make_agent(dispatch, say("sent"), tools=[echo("dispatch_worker")], max_tokens=100)
        assert await agent.run() == "sent"
        assert _choices(agent) == [None, "none"]


def _is_unknown(row: dict[str, Any]) -> bool:
    return "outcome is unknown" in text_of(row)


HANG = call(use("hang", "a"))


class TestDuration:
    """`max_duration_s` is 60; tools have half a second of grace beyond it."""

    @staticmethod
    async def _agent(*steps: Any, tools: Any = ()) -> Agent:
        return await make_agent(*steps, tools=tools, max_duration_s=60)

    @in_virtual_time
    async def test_a_long_tool_is_cancelled_after_the_grace_period_and_the_model_answers(self) -> None:
        hang = gated(asyncio.Event(), "hang")
        agent = await self._agent(HANG, say("I had no time"), tools=[hang])
        began_s = asyncio.get_running_loop().time()
        assert await agent.start() == "I had no time"
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(60.5, abs=0.1)
        assert [hang.cancelled, _is_unknown(agent.provider.sent()[-1])] == [1, True]
        assert _ending(agent) == ("incomplete", "max_duration_s")
        assert agent.outcomes() == {"a": "unknown"}

    @in_virtual_time
    async def test_a_tool_that_ends_within_the_grace_period_has_its_result(self) -> None:
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(60.3, gate.set)
        both = call(use("slow", "a", text="found"), use("hang", "b"))
        agent = await self._agent(both, say("ok"), tools=[gated(gate, "slow"), gated(asyncio.Event(), "hang")])
        await agent.start()
        first, second = agent.provider.sent()[-2:]
        assert [text_of(first), _is_unknown(second)] == ["found", True]

    @pytest.mark.parametrize("tool", [deaf_tool, gated])
    @in_virtual_time
    async def test_neither_a_tool_that_ignores_it_nor_one_that_forces_an_answer_holds_the_run(self, tool: Any) -> None:
        worker = tool(asyncio.Event(), "dispatch_worker")
        agent = await self._agent(call(use("dispatch_worker", "a")), say("I had no time"), tools=[worker])
        assert await agent.start() == "I had no time"
        assert _is_unknown(agent.provider.sent()[-1])
        assert _ending(agent) == ("incomplete", "max_duration_s")

    @in_virtual_time
    async def test_an_answer_in_flight_may_finish(self) -> None:
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(90, gate.set)
        agent = await self._agent(after(gate, say("done")))
        assert await agent.start() == "done"
        assert _ending(agent) == ("success", None)

    @in_virtual_time
    async def test_the_calls_of_such_an_answer_are_not_started(self) -> None:
        gate, tool = asyncio.Event(), echo()
        asyncio.get_running_loop().call_later(90, gate.set)
        agent = await self._agent(after(gate, call(use("echo", "a"))), say("I had no time"), tools=[tool])
        assert await agent.start() == "I had no time"
        assert tool.inputs == []
        assert "Not started" in text_of(agent.provider.sent()[-1])
        assert _ending(agent) == ("incomplete", "max_duration_s")

    @in_virtual_time
    async def test_the_wait_for_a_retry_counts(self) -> None:
        limited = fail(errors.RateLimitError("slow down", retry_after=60))
        agent = await self._agent(call(use("echo", "a")), limited, say("so far"), tools=[echo()])
        assert await agent.start() == "so far"
        assert _choices(agent) == [None, None, "none"]

    @in_virtual_time
    async def test_a_call_whose_result_was_to_follow_is_cancelled_and_the_model_reads_it(self) -> None:
        hang = gated(asyncio.Event(), "hang")
        agent = await self._agent(HANG, say("wait"), say("it took too long"), tools=[hang])
        run = await agent.in_tool(hang)
        agent.inject("!how is it going")
        assert await run == "it took too long"
        assert [hang.cancelled, _is_unknown(agent.provider.sent()[-1])] == [1, True]
        assert _ending(agent) == ("incomplete", "max_duration_s")

    @in_virtual_time
    async def test_a_stop_after_it_is_a_stop(self) -> None:
        agent = await self._agent(HANG, say("never said"), tools=[gated(asyncio.Event(), "hang")])
        asyncio.get_running_loop().call_later(60.2, agent.stop)
        assert await agent.start() == ""
        assert _ending(agent) == ("cancelled", None)

    @in_virtual_time
    async def test_a_run_that_ends_in_time_leaves_no_timer_behind(self) -> None:
        gate = asyncio.Event()
        agent = await self._agent(say("one"), call(use("wait", "a")), say("two"), tools=[gated(gate)])
        await agent.start()
        await asyncio.sleep(50)
        asyncio.get_running_loop().call_later(30, gate.set)
        assert await agent.start("again") == "two"
        assert _ending(agent) == ("success", None)


DISPATCH = call(use("dispatch_worker", "a"))


TOOLS = [echo("dispatch_worker"), echo()]


def _tool_choices(agent: Agent) -> list[tuple[bool, str | dict[str, object] | None]]:
    return [(bool(request.tools), request.tool_choice) for request in agent.provider.requests]


@pytest.mark.parametrize(("can_choose", "forced"), [(True, (True, "none")), (False, (False, None))])
async def test_after_a_force_respond_tool_the_choice_is_none_or_no_tools_are_declared(
    forced: tuple[bool, str | None], *, can_choose: bool
) -> None:
    provider = ScriptedProvider(call(use("echo", "a"), use("dispatch_worker", "b")), say("x"), tool_choice=can_choose)
    agent = await make_agent(provider=provider, tools=TOOLS)
    assert await agent.run() == "x"
    assert _tool_choices(agent) == [(True, None), forced]
    if can_choose:
        assert provider.requests[0].tools == provider.requests[1].tools


async def test_it_holds_for_one_call_only() -> None:
    gate = asyncio.Event()
    steps = (DISPATCH, after(gate, say("on it")), call(use("echo", "b")), say("done"), DISPATCH, say("x"), say("y"))
    agent = await make_agent(*steps, tools=TOOLS)
    run = await agent.steered("and now?", asked=2)
    gate.set()
    assert await run == "done"
    await agent.run("next")
    await agent.run("another")
    choices = [choice for _, choice in _tool_choices(agent)]
    assert choices == [None, "none", None, None, None, "none", None]


async def test_the_tools_that_force_an_answer_are_configured() -> None:
    steps = (DISPATCH, call(use("recipes", "b")), say("x"))
    agent = await make_agent(*steps, tools=[*TOOLS, echo("recipes")], force_respond_tools=["recipes"])
    await agent.run()
    assert _tool_choices(agent) == [(True, None), (True, None), (True, "none")]


async def test_tools_that_the_forced_answer_calls_are_not_run() -> None:
    tool = echo()
    steps = (DISPATCH, call(use("echo", "b"), text="still"), say("next"))
    agent = await make_agent(*steps, tools=[echo("dispatch_worker"), tool])
    assert await agent.run() == "still"
    assert tool.inputs == []
    assert faults(await agent.history()) == []
    assert await agent.run("again") == "next"
