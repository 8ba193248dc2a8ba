"""A failed model call leaves no trace in the conversation, and loses nothing of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents import call, echo, fail, gated, make_agent, say, soon, streaming, text_of, use

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest

DOWN = errors.ProviderUnavailableError("down")


async def test_a_failure_leaves_no_trace_in_it() -> None:
    agent = await make_agent(fail(DOWN), say("ok"), retry_base_delay_s=0)
    await agent.run()
    assert await agent.told() == [("user", "go"), ("assistant", "ok")]
    assert agent.provider.sent(0) == agent.provider.sent(1)


async def test_what_was_said_before_the_failure_is_said_once() -> None:
    agent = await make_agent(
        streaming("Once upon", then=fail(DOWN)),
        streaming("Once upon", TextBlock(text="Once upon"), then=fail(DOWN)),
        streaming("Once upon a time", then=say("Once upon a time")),
        retry_base_delay_s=0,
    )
    assert await agent.run() == "Once upon a time"
    assert await agent.told() == [("user", "go"), ("assistant", "Once upon a time")]
    assert agent.progress.of("text") == []


async def test_a_tool_that_had_begun_early_is_ended_and_begins_again_with_the_answer() -> None:
    gate = asyncio.Event()
    look = gated(gate, "look")
    look.side_effect_free = True  # type: ignore[attr-defined]
    block = ToolCallBlock(id="a", name="look", input={"text": "seen"})

    async def break_off(_request: Any, _stream: Any) -> Any:
        await look.started(1)
        raise DOWN

    agent = await make_agent(
        streaming("Let me", TextBlock(text="Let me look"), block, then=break_off),
        call(use("look", "a", text="seen")),
        say("ok"),
        tools=[look],
        retry_base_delay_s=0,
    )
    agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error")
    agent.progress.act_on("retrying", gate.set)
    assert await agent.run() == "ok"
    assert [(row["role"], text_of(row)) for row in await agent.history()][2:] == [
        ("tool", "seen"),
        ("assistant", "ok"),
    ]
    assert (look.cancelled, look.finished) == (1, 1)
    assert agent.events.names() == ["tool:pre", "tool:error", "tool:pre", "tool:post"]
    assert agent.progress.names().count("tool:start") == agent.progress.names().count("tool:end") == 2
    assert agent.token.running_tools == set()


async def test_an_early_tool_that_has_ended_already_tells_nothing_of_the_answer_that_failed() -> None:
    look = echo("look")
    look.side_effect_free = True  # type: ignore[attr-defined]
    ended = asyncio.Event()

    async def break_off(_request: Any, _stream: Any) -> Any:
        await soon(ended.wait())
        raise DOWN

    block = ToolCallBlock(id="a", name="look", input={"text": "seen"})
    agent = await make_agent(streaming(block, then=break_off), say("ok"), tools=[look], retry_base_delay_s=0)
    agent.progress.act_on("tool:end", ended.set)
    assert await agent.run() == "ok"
    assert await agent.told() == [("user", "go"), ("assistant", "ok")]


async def test_a_passing_remark_of_a_hook_is_in_the_repeated_request_too_and_once() -> None:
    agent = await make_agent(
        call(use("echo", "a", text="x")), fail(DOWN), fail(DOWN), call(use("echo", "b", text="y")), say("ok"),
        tools=[echo()], retry_base_delay_s=0,
    )  # fmt: skip
    remark = HookResult(action="inject_context", context_injection="mind the gap", ephemeral=True)
    forget = agent.on_hook("tool:post", remark)
    agent.progress.act_on("retrying", forget)
    await agent.run()
    said = [_count("mind the gap", request) for request in agent.provider.requests]
    assert said == [0, 1, 1, 1, 0]
    assert all("mind the gap" not in text for _, text in await agent.told())


async def test_a_remark_at_the_end_of_the_last_result_stays_there() -> None:
    agent = await make_agent(
        call(use("echo", "a", text="x")), fail(DOWN), say("ok"), tools=[echo()], retry_base_delay_s=0
    )
    remark = HookResult(
        action="inject_context", context_injection="hurry", ephemeral=True, append_to_last_tool_result=True
    )
    agent.on_hook("tool:post", remark)
    await agent.run()
    assert [text_of(agent.provider.sent(i)[-1]) for i in (1, 2)] == ["x\n\nhurry"] * 2


async def test_a_remark_on_the_request_itself_is_not_doubled_by_its_repetition() -> None:
    agent = await make_agent(fail(DOWN), fail(DOWN), say("ok"), retry_base_delay_s=0)
    remark = HookResult(action="inject_context", context_injection="it is Monday", ephemeral=True)
    agent.on_hook("provider:request", remark)
    await agent.run()
    assert [_count("it is Monday", request) for request in agent.provider.requests] == [1, 1, 1]


async def test_a_remark_on_the_failure_is_in_the_repeated_request() -> None:
    agent = await make_agent(fail(DOWN), say("ok"), retry_base_delay_s=0)
    remark = HookResult(action="inject_context", context_injection="it was down", ephemeral=True)
    agent.on_hook("provider:error", remark)
    await agent.run()
    assert [_count("it was down", request) for request in agent.provider.requests] == [0, 1]


async def test_that_the_model_must_answer_is_not_forgotten_over_a_failure() -> None:
    agent = await make_agent(
        call(use("dispatch_worker", "a")), fail(DOWN), say("sent"), tools=[echo("dispatch_worker")],
        retry_base_delay_s=0,
    )  # fmt: skip
    await agent.run()
    assert [request.tool_choice for request in agent.provider.requests] == [None, "none", "none"]


def _count(text: str, request: ChatRequest) -> int:
    return sum(message.model_dump_json().count(text) for message in request.messages)
