"""Batches of tool calls: side by side, each result as it comes, one result for every call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import acting, answer, call, echo, faults, gated, make_agent, raising, returning, say, use

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock, ToolCall, ToolCallBlock


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
