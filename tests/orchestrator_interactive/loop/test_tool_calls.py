"""Batches of tool calls: side by side, each result as it comes, one result for every call.

Many tool calls in one answer: a bounded number runs side by side, and a bounded number runs at all."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedTool,
    acting,
    answer,
    call,
    deaf_tool,
    echo,
    faults,
    gated,
    goes_on,
    having,
    make_agent,
    raising,
    results,
    returning,
    say,
    soon,
    streaming,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock, ToolCall, ToolCallBlock
from orchestrator_interactive.loop.tool_results import NOT_STARTED, STILL_RUNNING


async def _results(agent: Any) -> list[tuple[str, str]]:
    return [(row["tool_call_id"], row["content"]) for row in await agent.history() if row["role"] == "tool"]


async def test_tools_run_side_by_side() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a"), use("wait", "b"), use("open", "c")), say("ok"), tools=[tool])
    await agent.coordinator.mount("tools", acting(gate.set, "open"))
    assert await agent.run() == "ok"


async def test_a_result_stands_as_soon_as_it_is_there() -> None:
    first = asyncio.Event()
    slow = gated(first, "slow")
    agent = await make_agent(call(use("slow", "a"), use("quick", "b")), say("ok"), tools=[slow, echo("quick")])

    async def go_on(row: dict[str, Any]) -> None:
        if row.get("tool_call_id") == "b":
            first.set()

    agent.context.after = go_on
    assert await agent.run() == "ok"
    assert await _results(agent) == [("b", "quick"), ("a", "slow")]


async def test_results_that_are_there_at_the_same_time_stand_in_call_order() -> None:
    tools = [echo("one"), echo("two")]
    agent = await make_agent(call(use("one", "a"), use("two", "b")), say("ok"), tools=tools)
    await agent.run()
    assert await _results(agent) == [("a", "one"), ("b", "two")]


async def test_a_tool_that_fails_takes_no_sibling_down() -> None:
    agent = await make_agent(
        call(use("break", "a"), use("echo", "b", text="fine")), say("ok"), tools=[raising(OSError("no disk")), echo()]
    )
    assert await agent.run() == "ok"
    assert await _results(agent) == [("a", "no disk"), ("b", "fine")]


async def test_a_failed_result_is_marked_as_an_error() -> None:
    agent = await make_agent(call(use("break", "a")), say("ok"), tools=[raising(OSError("no disk"))])
    await agent.run()
    assert agent.provider.sent(1)[-1]["metadata"] == {"is_error": True}


async def test_an_unknown_tool_is_told_to_the_model_with_the_known_ones() -> None:
    agent = await make_agent(call(use("ehco", "a")), say("ok"), tools=[echo()])
    assert await agent.run() == "ok"
    [(_, text)] = await _results(agent)
    assert "ehco" in text
    assert "echo" in text.replace("ehco", "")


async def test_a_tool_that_cancels_itself_takes_nothing_down() -> None:
    agent = await make_agent(
        call(use("break", "a"), use("echo", "b")), say("ok"), tools=[raising(asyncio.CancelledError()), echo()]
    )
    assert await agent.run() == "ok"
    assert [call_id for call_id, _ in await _results(agent)] == ["a", "b"]


class _Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _circular() -> list[Any]:
    output: list[Any] = []
    output.append(output)
    return output


@pytest.mark.parametrize(
    "output", [{("a", "b"): 1}, _circular(), _Unprintable()], ids=["keys", "circle", "unprintable"]
)
async def test_an_output_that_cannot_be_written_down_is_a_failed_call(output: Any) -> None:
    agent = await make_agent(
        call(use("give", "a"), use("echo", "b")), say("ok"), tools=[returning(ToolResult(output=output)), echo()]
    )
    assert await agent.run() == "ok"
    assert [call_id for call_id, _ in await _results(agent)] == ["a", "b"]


@pytest.mark.parametrize(
    ("output", "text"),
    [("plain", "plain"), ({"a": 1}, '{"a": 1}'), (None, "Success"), (ToolResult(output="x"), "x"), ("nul\x00", "nul")],
)
async def test_any_output_becomes_text(output: Any, text: str) -> None:
    agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning(output)])
    await agent.run()
    assert await _results(agent) == [("a", text)]


async def test_what_the_model_said_beside_its_calls_stays_with_them() -> None:
    agent = await make_agent(call(use("echo", "a"), text="Let me look."), say("ok"), tools=[echo()])
    await agent.run()
    assert (await agent.told())[1] == ("assistant", "Let me look.")


async def test_the_call_is_committed_before_the_tool_starts() -> None:
    seen: list[list[str]] = []
    agent = await make_agent(call(use("look", "a")), say("ok"))

    async def before(row: dict[str, Any]) -> None:
        seen.append([row["role"], *map(str, tool.inputs)])

    tool = echo("look")
    await agent.coordinator.mount("tools", tool)
    agent.context.before = before
    await agent.run()
    assert seen[1] == ["assistant"]


async def test_a_call_that_the_provider_did_not_parse_does_not_spoil_the_next_request() -> None:
    blocks = [TextBlock(text="hm"), *(ToolCallBlock(id=i, name="echo", input={}) for i in "ab")]
    agent = await make_agent(answer(*blocks), say("ok"), tools=[echo()])
    agent.provider.parse_tool_calls = lambda response: (response.tool_calls or [])[:1]  # type: ignore[method-assign]
    assert await agent.run() == "ok"


async def test_calls_beside_the_blocks_are_called_too() -> None:
    agent = await make_agent(answer(TextBlock(text="hm")), say("ok"), tools=[echo()])
    calls = iter([[ToolCall(id="a", name="echo", arguments={})], []])
    agent.provider.parse_tool_calls = lambda _response: next(calls)  # type: ignore[method-assign]
    assert await agent.run() == "ok"
    assert faults(await agent.history()) == []
    assert [call_id for call_id, _ in await _results(agent)] == ["a"]


async def test_a_result_that_cannot_be_committed_ends_the_run_and_the_other_tools() -> None:
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


async def test_the_next_run_after_a_lost_result_is_valid() -> None:
    agent = await make_agent(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[echo()])

    async def refuse(row: dict[str, Any]) -> None:
        if row["role"] == "tool":
            raise OSError("disk full")

    agent.context.before = refuse
    with pytest.raises(OSError, match="disk full"):
        await agent.run()
    agent.context.before = None
    assert await agent.run("again") == "ok"


async def test_a_result_may_hold_a_picture() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    blocks = [TextBlock(text="the plan"), ImageBlock(source=source)]
    agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning(ToolResult(content=blocks))])
    remark = HookResult(
        action="inject_context", context_injection="look closely", ephemeral=True, append_to_last_tool_result=True
    )
    agent.on_hook("tool:post", remark)
    await agent.run()
    [row] = [row for row in await agent.history() if row["role"] == "tool"]
    assert row["content"] == [{"type": "text", "text": "the plan"}, {"type": "image", "source": source}]
    read = agent.provider.requests[1].messages[-1].content
    assert [block.type for block in read] == ["text", "image", "text"]
    assert read[-1].text == "look closely"


class Counting:
    """A tool that waits for its gate, and the most calls of it that were ever at work."""

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


async def rows_of_results(agent: Agent) -> list[str]:
    return [row["tool_call_id"] for row in await agent.history() if row["role"] == "tool"]


@pytest.mark.parametrize(("options", "most"), [({}, 8), ({"max_parallel_tools": 1}, 1), ({"max_parallel_tools": 3}, 3)])
@in_virtual_time
async def test_so_many_calls_run_side_by_side_and_each_has_one_result(options: dict[str, int], most: int) -> None:
    counting = Counting(seconds=1)
    agent = await make_agent(calls(20), say("ok"), tools=[counting.tool], **options)
    assert await agent.start() == "ok"
    assert counting.most == most
    assert await results(agent) == {f"c{number}": f"done {number}" for number in range(20)}
    assert [each["text"] for each in counting.tool.inputs] == [str(number) for number in range(20)], "in their order"


@in_virtual_time
async def test_the_time_limit_of_a_call_begins_with_its_tool() -> None:
    counting = Counting(seconds=4)
    agent = await make_agent(calls(3), say("ok"), tools=[counting.tool], max_parallel_tools=1, tool_timeout_s=5)
    await agent.start()
    assert list((await results(agent)).values()) == ["done 0", "done 1", "done 2"]


@in_virtual_time
async def test_a_tool_that_is_deaf_to_its_end_does_not_hold_up_the_calls_that_wait() -> None:
    release = asyncio.Event()
    deaf = having(deaf_tool(release), timeout_s=1)
    batch = call(use("deaf", "a"), use("echo", "b", text="next"))
    agent = await make_agent(batch, say("ok"), tools=[deaf, echo()], max_parallel_tools=1)
    await agent.start()
    assert (await results(agent))["b"] == "next"
    release.set()


async def test_a_stop_leaves_the_calls_that_wait_as_never_begun() -> None:
    counting = Counting()
    agent = await make_agent(calls(5), tools=[counting.tool], max_parallel_tools=2, stop_grace_s=600)
    run = agent.start()
    await counting.tool.started(2)
    agent.stop()
    counting.gate.set()
    await soon(run)
    assert len(counting.tool.inputs) == 2
    outcomes = await results(agent)
    assert [outcomes[f"c{number}"] for number in range(5)] == ["done 0", "done 1"] + [NOT_STARTED] * 3
    assert [each["outcome"] for each in agent.progress.of("complete")[0]["tools"]].count("cancelled") == 3
    await goes_on(agent)


async def test_an_urgent_message_leaves_waiting_calls_to_follow_and_those_of_the_next_answer_do_not_wait() -> None:
    counting = Counting()
    agent = await make_agent(
        calls(3),
        call(use("echo", "quick", text="at once")),
        say("So far."),
        *(say("More is done.") for _ in range(3)),
        tools=[counting.tool, echo()],
        max_parallel_tools=1,
    )
    run = agent.start()
    await counting.tool.started(1)
    agent.inject("!how far are you")
    await agent.progress.reached("text")
    outcomes = await results(agent)
    assert outcomes["quick"] == "at once"
    assert [outcomes[f"c{number}"] for number in range(3)] == [STILL_RUNNING] * 3
    counting.gate.set()
    await soon(run)
    assert counting.most == 1
    assert len(counting.tool.inputs) == 3


async def test_however_many_urgent_messages_come_the_calls_at_work_are_bounded() -> None:
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


async def test_a_run_that_is_suspended_still_makes_the_calls_that_wait() -> None:
    counting = Counting()
    agent = await make_agent(calls(4), tools=[counting.tool], max_parallel_tools=2)
    run = agent.start()
    await counting.tool.started(2)
    assert agent.coordinator.get_capability("orchestrator.suspend")()
    counting.gate.set()
    await soon(run)
    assert list((await results(agent)).values()) == [f"done {number}" for number in range(4)]


async def test_calls_beyond_the_most_of_an_answer_fail_and_are_never_started() -> None:
    tool = echo()
    agent = await make_agent(calls(9, "echo"), say("ok"), tools=[tool], max_calls_per_answer=6)
    assert await agent.run() == "ok"
    assert len(tool.inputs) == 6
    assert sorted(await rows_of_results(agent)) == [f"c{number}" for number in range(9)]
    rows = {row["tool_call_id"]: row for row in await agent.history() if row["role"] == "tool"}
    for number in (6, 7, 8):
        assert "at most 6 tool calls" in rows[f"c{number}"]["content"]
        assert rows[f"c{number}"]["metadata"] == {"is_error": True}
    await goes_on(agent)


async def test_calls_that_begin_early_count_among_the_most_of_an_answer() -> None:
    blocks = [ToolCallBlock(id=f"c{number}", name="echo", input={"text": str(number)}) for number in range(9)]
    tool = having(echo(), side_effect_free=True)
    agent = await make_agent(
        streaming(*blocks, then=answer(*blocks)), say("ok"), tools=[tool, echo("other")], max_calls_per_answer=4
    )
    assert await agent.run() == "ok"
    assert len(tool.inputs) == 4
    assert sum("at most 4" in text for text in (await results(agent)).values()) == 5


async def test_a_thousand_calls_in_one_answer_have_a_thousand_results() -> None:
    agent = await make_agent(calls(1000), say("ok"), tools=[echo("work")], max_calls_per_answer=1000)
    assert await agent.run() == "ok"
    assert sorted(await rows_of_results(agent)) == sorted(f"c{number}" for number in range(1000))
