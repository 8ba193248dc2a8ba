"""At a limit of its own a run ends gracefully: one answer without tools, and why it is the last one."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedProvider,
    after,
    call,
    deaf_tool,
    doing,
    echo,
    fail,
    faults,
    gated,
    make_agent,
    never,
    say,
    soon,
    streaming,
    text_of,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import Usage

USED = Usage(input_tokens=70, output_tokens=30, total_tokens=100, cost_usd=Decimal("0.04"))


# Each is reached by the second answer.
LIMITS = {"max_iterations": 2, "max_tokens": 200, "max_cost_usd": "0.08"}


def look(call_id: str) -> Any:
    return call(use("echo", call_id), usage=USED)


def _ending(agent: Agent) -> tuple[str, str | None]:
    complete = agent.progress.of("complete")[-1]
    return complete["status"], complete.get("reason")


def _choices(provider: ScriptedProvider) -> list[Any]:
    return [request.tool_choice if request.tools else "no tools" for request in provider.requests]


@pytest.mark.parametrize("limit", LIMITS)
class TestEveryLimit:
    async def test_it_ends_the_run_with_one_answer_without_tools(self, limit: str) -> None:
        agent = await make_agent(look("a"), look("b"), say("so far"), tools=[echo()], **{limit: LIMITS[limit]})
        assert await agent.run() == "so far"
        assert _choices(agent.provider) == [None, None, "none"]
        assert agent.provider.prefix_breaks() == []

    async def test_people_and_hooks_are_told(self, limit: str) -> None:
        agent = await make_agent(look("a"), look("b"), say("so far"), tools=[echo()], **{limit: LIMITS[limit]})
        agent.events.listen(agent.hooks, "orchestrator:complete", "execution:end")
        await agent.run()
        assert _ending(agent) == ("incomplete", limit)
        assert [data["status"] for _, data in agent.events.seen] == ["completed", "incomplete"]

    async def test_an_answer_that_reaches_it_in_words_is_simply_the_answer(self, limit: str) -> None:
        agent = await make_agent(look("a"), say("done", usage=USED), tools=[echo()], **{limit: LIMITS[limit]})
        assert await agent.run() == "done"
        assert _ending(agent) == ("success", None)

    async def test_a_provider_that_cannot_choose_gets_no_tools(self, limit: str) -> None:
        provider = ScriptedProvider(look("a"), look("b"), say("so far"), tool_choice=False)
        agent = await make_agent(provider=provider, tools=[echo()], **{limit: LIMITS[limit]})
        assert await agent.run() == "so far"
        assert _choices(provider) == [None, None, "no tools"]

    async def test_a_model_that_wants_tools_all_the_same_is_not_obeyed(self, limit: str) -> None:
        tool = echo()
        last = call(use("echo", "c"), text="still")
        agent = await make_agent(look("a"), look("b"), last, tools=[tool], **{limit: LIMITS[limit]})
        assert await agent.run() == "still"
        assert len(tool.inputs) == 2
        assert faults(await agent.history()) == []

    async def test_what_is_written_during_the_last_answer_is_answered_too(self, limit: str) -> None:
        agent = await make_agent(tools=[echo()], **{limit: LIMITS[limit]})
        agent.provider.add(look("a"), look("b"), doing(lambda: agent.inject("and?"), say("so far")), say("that"))
        assert await agent.run() == "that"
        assert _choices(agent.provider) == [None, None, "none", "none"]
        assert [told["text"] for told in agent.progress.of("text")] == ["so far"]
        assert _ending(agent) == ("incomplete", limit)

    async def test_what_was_written_before_it_is_in_the_last_request(self, limit: str) -> None:
        agent = await make_agent(look("a"), look("b"), say("so far"), tools=[echo()], **{limit: LIMITS[limit]})
        agent.progress.act_on("tool:end", lambda: agent.progress.act_on("tool:end", lambda: agent.inject("hurry")))
        await agent.run()
        assert text_of(agent.provider.sent(2)[-1]).endswith("- hurry")

    async def test_the_last_answer_may_be_repeated_and_continued(self, limit: str) -> None:
        down = fail(errors.ProviderUnavailableError("down"))
        last = (down, say("so ", finish_reason="max_tokens"), say("far"))
        options: dict[str, Any] = {limit: LIMITS[limit], "retry_base_delay_s": 0}
        agent = await make_agent(look("a"), look("b"), *last, tools=[echo()], **options)
        assert await agent.run() == "so far"
        assert _choices(agent.provider)[2:] == ["none"] * 3
        assert _ending(agent) == ("incomplete", limit)

    async def test_a_stop_of_the_last_answer_is_a_stop(self, limit: str) -> None:
        agent = await make_agent(
            look("a"), look("b"), streaming("so", then=never()), tools=[echo()], **{limit: LIMITS[limit]}
        )
        run = agent.start()
        await agent.provider.asked(3)
        agent.stop()
        assert await soon(run) == "so"
        assert _ending(agent) == ("cancelled", None)

    async def test_a_tool_that_is_at_work_still_is_waited_for_and_its_result_answered(self, limit: str) -> None:
        gate = asyncio.Event()
        slow = gated(gate, "slow")
        steps = (call(use("slow", "a", text="found"), usage=USED), look("b"), say("wait"), say("there it is"))
        agent = await make_agent(*steps, tools=[slow, echo()], **{limit: LIMITS[limit]})
        agent.progress.act_on("text", gate.set)
        run = agent.start()
        await slow.started()
        agent.inject("!and b")
        assert await soon(run) == "there it is"
        assert [told["text"] for told in agent.progress.of("text")] == ["wait"]
        assert "found" in text_of(agent.provider.sent()[-1])
        assert _choices(agent.provider) == [None, None, "none", "none"]
        assert _ending(agent) == ("incomplete", limit)

    async def test_the_next_run_has_as_much_again(self, limit: str) -> None:
        agent = await make_agent(look("a"), look("b"), say("so far"), tools=[echo()], **{limit: LIMITS[limit]})
        await agent.run()
        agent.provider.add(look("c"), say("done"))
        assert await agent.run("go on") == "done"
        assert _ending(agent) == ("success", None)


class TestCounting:
    async def test_tokens_are_those_read_and_those_written(self) -> None:
        agent = await make_agent(look("a"), say("so far"), tools=[echo()], max_tokens=100)
        await agent.run()
        assert _choices(agent.provider) == [None, "none"]
        agent = await make_agent(look("a"), say("done"), tools=[echo()], max_tokens=101)
        await agent.run()
        assert _choices(agent.provider) == [None, None]

    async def test_what_the_provider_does_not_count_reaches_no_limit(self) -> None:
        silent = call(use("echo", "a"), usage=None)
        free = call(use("echo", "b"), usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2))
        agent = await make_agent(silent, free, say("done"), tools=[echo()], max_cost_usd="0.01", max_tokens=10)
        assert await agent.run() == "done"
        assert _ending(agent) == ("success", None)

    async def test_that_the_model_must_answer_and_that_it_may_no_more_is_one_answer(self) -> None:
        agent = await make_agent(
            call(use("dispatch_worker", "a"), usage=USED), say("sent"), tools=[echo("dispatch_worker")], max_tokens=100
        )
        assert await agent.run() == "sent"
        assert _choices(agent.provider) == [None, "none"]

    @pytest.mark.parametrize("limit", ["max_tokens", "max_cost_usd", "max_duration_s", "tool_timeout_s"])
    def test_nothing_at_all_is_no_limit(self, limit: str) -> None:
        with pytest.raises(ValueError, match=limit):
            InteractiveOrchestrator({limit: 0})


def _cut(row: dict[str, Any]) -> bool:
    return "outcome is unknown" in text_of(row)


class TestTime:
    """`max_duration_s` is 60, and tools have half a second beyond it."""

    @in_virtual_time
    async def test_a_long_tool_is_cut_after_the_grace_period_and_the_model_has_a_last_word(self) -> None:
        hang = gated(asyncio.Event(), "hang")
        agent = await make_agent(call(use("hang", "a")), say("I had no time"), tools=[hang], max_duration_s=60)
        clock = asyncio.get_running_loop()
        began_s = clock.time()
        assert await agent.start() == "I had no time"
        assert clock.time() - began_s == pytest.approx(60.5, abs=0.1)
        assert [hang.cancelled, _cut(agent.provider.sent()[-1])] == [1, True]
        assert _ending(agent) == ("incomplete", "max_duration_s")
        assert [(each["id"], each["outcome"]) for each in agent.progress.of("complete")[0]["tools"]] == [
            ("a", "unknown")
        ]

    @in_virtual_time
    async def test_one_that_ends_within_the_grace_period_has_its_result(self) -> None:
        gate = asyncio.Event()
        slow, hang = gated(gate, "slow"), gated(asyncio.Event(), "hang")
        asyncio.get_running_loop().call_later(60.3, gate.set)
        both = call(use("slow", "a", text="found"), use("hang", "b"))
        agent = await make_agent(both, say("ok"), tools=[slow, hang], max_duration_s=60)
        await agent.start()
        first, second = agent.provider.sent()[-2:]
        assert [text_of(first), _cut(second)] == ["found", True]

    @in_virtual_time
    async def test_one_that_is_deaf_to_it_does_not_hold_the_run(self) -> None:
        agent = await make_agent(
            call(use("deaf", "a")), say("I had no time"), tools=[deaf_tool(asyncio.Event())], max_duration_s=60
        )
        assert await agent.start() == "I had no time"
        assert _cut(agent.provider.sent()[-1])

    @in_virtual_time
    async def test_a_tool_that_makes_the_model_answer_is_no_excuse(self) -> None:
        worker = gated(asyncio.Event(), "dispatch_worker")
        agent = await make_agent(
            call(use("dispatch_worker", "a")), say("I had no time"), tools=[worker], max_duration_s=60
        )
        assert await agent.start() == "I had no time"
        assert _ending(agent) == ("incomplete", "max_duration_s")

    @in_virtual_time
    async def test_an_answer_that_is_on_its_way_is_let_finish(self) -> None:
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(90, gate.set)
        agent = await make_agent(after(gate, say("done")), max_duration_s=60)
        assert await agent.start() == "done"
        assert _ending(agent) == ("success", None)

    @in_virtual_time
    async def test_what_such_an_answer_asks_for_is_not_begun(self) -> None:
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(90, gate.set)
        tool = echo()
        agent = await make_agent(
            after(gate, call(use("echo", "a"))), say("I had no time"), tools=[tool], max_duration_s=60
        )
        assert await agent.start() == "I had no time"
        assert tool.inputs == []
        assert "Not started" in text_of(agent.provider.sent()[-1])
        assert _ending(agent) == ("incomplete", "max_duration_s")

    @in_virtual_time
    async def test_a_wait_for_the_provider_takes_of_it(self) -> None:
        agent = await make_agent(
            call(use("echo", "a")), fail(errors.RateLimitError("slow down", retry_after=60)), say("so far"),
            tools=[echo()], max_duration_s=60,
        )  # fmt: skip
        assert await agent.start() == "so far"
        assert _choices(agent.provider) == [None, None, "none"]

    @in_virtual_time
    async def test_a_tool_whose_result_was_to_follow_is_cut_and_the_model_hears_of_it(self) -> None:
        hang = gated(asyncio.Event(), "hang")
        agent = await make_agent(
            call(use("hang", "a")), say("wait"), say("it took too long"), tools=[hang], max_duration_s=60
        )
        run = agent.start()
        await hang.started()
        agent.inject("!how is it going")
        assert await run == "it took too long"
        assert _cut(agent.provider.sent()[-1])
        assert hang.cancelled == 1
        assert _ending(agent) == ("incomplete", "max_duration_s")

    @in_virtual_time
    async def test_a_stop_after_it_is_a_stop(self) -> None:
        hang = gated(asyncio.Event(), "hang")
        agent = await make_agent(call(use("hang", "a")), say("never said"), tools=[hang], max_duration_s=60)
        asyncio.get_running_loop().call_later(60.2, agent.stop)
        assert await agent.start() == ""
        assert _ending(agent) == ("cancelled", None)

    @in_virtual_time
    async def test_a_run_that_is_done_in_time_leaves_no_clock_behind(self) -> None:
        agent = await make_agent(say("one"), call(use("wait", "a", text="x")), say("two"), max_duration_s=60)
        gate = asyncio.Event()
        await agent.coordinator.mount("tools", gated(gate))
        await agent.start()
        await asyncio.sleep(50)
        asyncio.get_running_loop().call_later(30, gate.set)
        assert await agent.start("again") == "two"
        assert _ending(agent) == ("success", None)
