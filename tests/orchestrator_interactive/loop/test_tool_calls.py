"""Tool calls of one answer run side by side within bounds, and each has exactly one result."""

import asyncio
from typing import Any

import pytest
from agents.after_run import goes_on, results
from agents.milestones import soon
from agents.provider import answer, call, say, streaming, use
from agents.rows import faults
from agents.session import make_agent
from agents.tools import ScriptedTool, acting, deaf_tool, echo, gated, having, raising, returning
from loop_rows import NOT_STARTED, STILL_RUNNING
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock, ToolCall, ToolCallBlock


class TestResults:
    async def test_tools_run_side_by_side(self) -> None:
        gate = asyncio.Event()
        batch = call(use("wait", "a"), use("wait", "b"), use("open", "c"))
        agent = await make_agent(batch, say("ok"), tools=[gated(gate), acting(gate.set, "open")])
        assert await agent.run() == "ok"

    async def test_each_is_committed_as_soon_as_it_is_there(self) -> None:
        first = asyncio.Event()
        batch = call(use("slow", "a"), use("quick", "b"))
        agent = await make_agent(batch, say("ok"), tools=[gated(first, "slow"), echo("quick")])
        agent.context.act("after", lambda row: row.get("tool_call_id") == "b" and first.set())
        assert await agent.run() == "ok"
        assert list((await results(agent)).items()) == [("b", "quick"), ("a", "slow")]

    async def test_those_of_the_same_time_are_in_call_order(self) -> None:
        tools = [echo("one"), echo("two")]
        agent = await make_agent(call(use("one", "a"), use("two", "b")), say("ok"), tools=tools)
        await agent.run()
        assert list((await results(agent)).items()) == [("a", "one"), ("b", "two")]

    @pytest.mark.parametrize("error", [OSError("no disk"), asyncio.CancelledError()])
    async def test_a_tool_that_fails_or_cancels_itself_takes_no_sibling_down(self, error: BaseException) -> None:
        batch = call(use("break", "a"), use("echo", "b", text="fine"))
        agent = await make_agent(batch, say("ok"), tools=[raising(error), echo()])
        assert await agent.run() == "ok"
        assert str(error) in (await results(agent))["a"]
        assert (await results(agent))["b"] == "fine"
        assert agent.provider.sent(1)[2]["metadata"] == {"is_error": True}

    async def test_the_result_of_an_unknown_tool_names_the_known_ones(self) -> None:
        agent = await make_agent(call(use("ehco", "a")), say("ok"), tools=[echo()])
        assert await agent.run() == "ok"
        text = (await results(agent))["a"]
        assert "ehco" in text
        assert "echo" in text.replace("ehco", "")

    @pytest.mark.parametrize("kind", ["keys", "circle", "unprintable"])
    async def test_an_output_that_cannot_be_serialised_is_a_failed_call(self, kind: str) -> None:
        class Unprintable:
            def __str__(self) -> str:
                raise RuntimeError("no words")

        circle: list[Any] = []
        circle.append(circle)
        output = {"keys": {("a", "b"): 1}, "circle": circle, "unprintable": Unprintable()}[kind]
        tools = [returning(ToolResult(output=output)), echo()]
        agent = await make_agent(call(use("give", "a"), use("echo", "b")), say("ok"), tools=tools)
        assert await agent.run() == "ok"
        assert list(await results(agent)) == ["a", "b"]

    @pytest.mark.parametrize(
        ("output", "text"),
        [("plain", "plain"), ({"a": 1}, '{"a": 1}'), (None, "Success"), (ToolResult(output="x"), "x"), ("a\x00", "a")],
    )
    async def test_any_output_becomes_text(self, output: Any, text: str) -> None:
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning(output)])
        await agent.run()
        assert await results(agent) == {"a": text}

    async def test_a_result_may_hold_an_image(self) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
        blocks = [TextBlock(text="the plan"), ImageBlock(source=source)]
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning(ToolResult(content=blocks))])
        look = {"context_injection": "look closely", "ephemeral": True, "append_to_last_tool_result": True}
        agent.on_hook("tool:post", HookResult(action="inject_context", **look))
        await agent.run()
        [row] = [row for row in await agent.history() if row["role"] == "tool"]
        assert row["content"] == [{"type": "text", "text": "the plan"}, {"type": "image", "source": source}]
        sent = agent.provider.requests[1].messages[-1].content
        assert [block.type for block in sent] == ["text", "image", "text"]
        assert sent[-1].text == "look closely"


class TestTheCallRow:
    async def test_the_text_beside_the_calls_stays_with_them(self) -> None:
        agent = await make_agent(call(use("echo", "a"), text="Let me look."), say("ok"), tools=[echo()])
        await agent.run()
        assert (await agent.told())[1] == ("assistant", "Let me look.")

    async def test_the_call_is_committed_before_the_tool_starts(self) -> None:
        tool, inputs = echo("look"), []
        agent = await make_agent(call(use("look", "a")), say("ok"), tools=[tool])
        agent.context.act("before", lambda _row: inputs.append(len(tool.inputs)))
        await agent.run()
        assert inputs == [0, 0, 1, 1]

    async def test_a_call_that_the_provider_did_not_parse_does_not_spoil_the_next_request(self) -> None:
        blocks = [TextBlock(text="hm"), *(ToolCallBlock(id=i, name="echo", input={}) for i in "ab")]
        agent = await make_agent(answer(*blocks), say("ok"), tools=[echo()])
        agent.provider.parse_tool_calls = lambda response: (response.tool_calls or [])[:1]  # type: ignore[method-assign]
        assert await agent.run() == "ok"

    async def test_calls_beside_the_blocks_are_called_too(self) -> None:
        agent = await make_agent(answer(TextBlock(text="hm")), say("ok"), tools=[echo()])
        calls = iter([[ToolCall(id="a", name="echo", arguments={})], []])
        agent.provider.parse_tool_calls = lambda _response: next(calls)  # type: ignore[method-assign]
        assert await agent.run() == "ok"
        assert faults(await agent.history()) == []
        assert list(await results(agent)) == ["a"]

    async def test_a_result_that_cannot_be_committed_ends_the_run_and_the_other_tools(self) -> None:
        tool = gated(asyncio.Event())
        agent = await make_agent(call(use("echo", "a"), use("wait", "b")), say("ok"), tools=[echo(), tool])

        async def refuse(row: dict[str, Any]) -> None:
            if row["role"] == "tool":
                await tool.started()
                raise OSError("disk full")

        agent.context.before = refuse
        with pytest.raises(OSError, match="disk full"):
            await agent.run()
        assert tool.cancelled == 1
        agent.context.accept()
        assert await agent.run("again") == "ok"


class Counting:
    """A tool that waits for its gate or some seconds, and counts its calls that run at once."""

    def __init__(self, *, seconds: float = 0) -> None:
        self.gate = asyncio.Event()
        self.now = self.most = 0
        self._seconds = seconds
        self.tool = ScriptedTool("work", self._work)

    async def _work(self, given: dict[str, Any]) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await (asyncio.sleep(self._seconds) if self._seconds else self.gate.wait())
        finally:
            self.now -= 1
        return f"done {given.get('text', '')}".strip()


def calls(count: int, name: str = "work") -> Any:
    return call(*(use(name, f"c{number}", text=str(number)) for number in range(count)))


class TestBounds:
    @pytest.mark.parametrize(
        ("options", "most"), [({}, 8), ({"max_parallel_tools": 1}, 1), ({"max_parallel_tools": 3}, 3)]
    )
    @in_virtual_time
    async def test_calls_run_side_by_side_up_to_the_bound_in_their_order(
        self, options: dict[str, int], most: int
    ) -> None:
        counting = Counting(seconds=4)
        agent = await make_agent(calls(20), say("ok"), tools=[counting.tool], tool_timeout_s=5, **options)
        assert await agent.start() == "ok"
        assert counting.most == most
        assert await results(agent) == {f"c{number}": f"done {number}" for number in range(20)}, "none timed out"
        assert [each["text"] for each in counting.tool.inputs] == [str(number) for number in range(20)]

    @in_virtual_time
    async def test_a_tool_that_ignores_its_timeout_does_not_hold_up_the_calls_that_wait(self) -> None:
        release = asyncio.Event()
        tools = [having(deaf_tool(release), timeout_s=1), echo()]
        batch = call(use("deaf", "a"), use("echo", "b", text="next"))
        agent = await make_agent(batch, say("ok"), tools=tools, max_parallel_tools=1)
        await agent.start()
        assert (await results(agent))["b"] == "next"
        release.set()

    async def test_a_stop_leaves_the_calls_that_wait_as_not_started(self) -> None:
        counting = Counting()
        agent = await make_agent(calls(5), tools=[counting.tool], max_parallel_tools=2, stop_grace_s=600)
        run = await agent.in_tool(counting.tool, 2)
        agent.stop()
        counting.gate.set()
        await soon(run)
        assert len(counting.tool.inputs) == 2
        found = await results(agent)
        assert [found[f"c{number}"] for number in range(5)] == ["done 0", "done 1"] + [NOT_STARTED] * 3
        assert list(agent.outcomes().values()).count("cancelled") == 3
        await goes_on(agent)

    async def test_a_suspended_run_still_makes_the_calls_that_wait(self) -> None:
        counting = Counting()
        agent = await make_agent(calls(4), tools=[counting.tool], max_parallel_tools=2)
        run = await agent.in_tool(counting.tool, 2)
        assert agent.coordinator.get_capability("orchestrator.suspend")()
        counting.gate.set()
        await soon(run)
        assert list((await results(agent)).values()) == [f"done {number}" for number in range(4)]

    async def test_after_an_urgent_message_calls_of_the_next_answer_do_not_wait_for_the_earlier_ones(self) -> None:
        counting = Counting()
        steps = calls(3), call(use("echo", "quick", text="at once")), say("So far."), *map(say, "abc")
        agent = await make_agent(*steps, tools=[counting.tool, echo()], max_parallel_tools=1)
        run = await agent.in_tool(counting.tool)
        agent.inject("!how far are you")
        await agent.progress.reached("text")
        assert await results(agent) == {**{f"c{n}": STILL_RUNNING for n in range(3)}, "quick": "at once"}
        counting.gate.set()
        await soon(run)
        assert counting.most == 1
        assert len(counting.tool.inputs) == 3

    async def test_however_many_urgent_messages_come_the_running_calls_are_bounded(self) -> None:
        counting = Counting()
        steps = [call(*(use("work", f"r{r}c{n}") for n in range(4))) for r in range(5)]
        agent = await make_agent(*steps, *(say("x") for _ in range(25)), tools=[counting.tool], max_parallel_tools=1)
        run = agent.start()
        for answers in range(1, 5):
            await agent.progress.reached("thinking", answers)
            await counting.tool.started(min(answers, 3))
            agent.inject("!x")
        await agent.progress.reached("thinking", 5)
        counting.gate.set()
        await soon(run)
        assert counting.most == 3
        assert len(counting.tool.inputs) == 20

    async def test_calls_beyond_the_most_of_an_answer_fail_and_are_never_started(self) -> None:
        tool = echo()
        agent = await make_agent(calls(9, "echo"), say("ok"), tools=[tool], max_calls_per_answer=6)
        assert await agent.run() == "ok"
        assert len(tool.inputs) == 6
        rows = {row["tool_call_id"]: row for row in await agent.history() if row["role"] == "tool"}
        assert sorted(rows) == [f"c{number}" for number in range(9)]
        for number in (6, 7, 8):
            assert "at most 6 tool calls" in rows[f"c{number}"]["content"]
            assert rows[f"c{number}"]["metadata"] == {"is_error": True}
        await goes_on(agent)

    async def test_calls_that_start_early_count_among_the_most_of_an_answer(self) -> None:
        blocks = [ToolCallBlock(id=f"c{number}", name="echo", input={"text": str(number)}) for number in range(9)]
        tool = having(echo(), side_effect_free=True)
        step = streaming(*blocks, then=answer(*blocks))
        agent = await make_agent(step, say("ok"), tools=[tool], max_calls_per_answer=4)
        assert await agent.run() == "ok"
        assert len(tool.inputs) == 4
        assert sum("at most 4" in text for text in (await results(agent)).values()) == 5

    async def test_a_thousand_calls_in_one_answer_have_a_thousand_results(self) -> None:
        agent = await make_agent(calls(1000), say("ok"), tools=[echo("work")], max_calls_per_answer=1000)
        assert await agent.start() == "ok"
        assert sorted(await results(agent)) == sorted(f"c{number}" for number in range(1000))
