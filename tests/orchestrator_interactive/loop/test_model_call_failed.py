"""A failed model call leaves no trace in the conversation, and loses nothing of it.

A provider that fails for good, stalls or is not there: the error keeps its type and is never an answer."""

import asyncio
from typing import Any

import pytest
from agents import (
    ScriptedProvider,
    after,
    call,
    deaf,
    echo,
    fail,
    gated,
    make_agent,
    never,
    say,
    soon,
    streaming,
    text_of,
    use,
)

from orchestrator_interactive import RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, TextBlock, ToolCallBlock

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


ERRORS = [
    errors.RateLimitError("slow down", retry_after=7.0),
    errors.AuthenticationError("who?"),
    errors.ContentFilterError("no"),
    errors.InvalidRequestError("bad"),
    errors.ProviderUnavailableError("down"),
    errors.LLMTimeoutError("slow"),
    ValueError("a bug in the provider"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_errors_reach_the_caller_as_they_are(error: Exception) -> None:
    agent = await make_agent(fail(error), max_retries=0)
    with pytest.raises(type(error)) as caught:
        await agent.run()
    assert caught.value is error


async def test_an_error_is_no_answer() -> None:
    agent = await make_agent(fail(errors.ProviderUnavailableError("down")), max_retries=0)
    with pytest.raises(errors.ProviderUnavailableError):
        await agent.run()
    assert await agent.told() == [("user", "go")]
    assert agent.progress.of("complete")[0]["status"] == "error"


async def test_an_error_is_reported_once_with_its_provider() -> None:
    error = errors.ProviderUnavailableError("down")
    agent = await make_agent(fail(error), max_retries=0)
    agent.events.listen(agent.hooks, "provider:error", "provider:response")
    with pytest.raises(errors.ProviderUnavailableError):
        await agent.run()
    assert agent.events.names() == ["provider:error"]
    assert agent.events.of("provider:error")[0].items() >= {"provider": "scripted", "error": error}.items()


async def test_an_error_after_tools_leaves_a_history_for_the_next_run() -> None:
    agent = await make_agent(
        call(use("echo", "a")), fail(errors.AuthenticationError("who?")), say("ok"), tools=[echo()]
    )
    with pytest.raises(errors.AuthenticationError):
        await agent.run()
    assert await agent.run("again") == "ok"
    assert agent.provider.prefix_breaks() == []


async def test_a_provider_that_cancels_itself_has_failed() -> None:
    agent = await make_agent(fail(asyncio.CancelledError()), max_retries=0)
    with pytest.raises(errors.ProviderUnavailableError):
        await agent.run()


async def test_a_silent_model_is_a_timeout() -> None:
    agent = await make_agent(never(), stall_timeout_s=0.01, max_retries=0)
    with pytest.raises(errors.LLMTimeoutError) as caught:
        await agent.run()
    assert caught.value.retryable
    assert agent.provider.cancelled == 1


async def test_a_model_that_falls_silent_in_mid_answer_is_a_timeout() -> None:
    agent = await make_agent(streaming("so far", then=never()), stall_timeout_s=0.01, max_retries=0)
    with pytest.raises(errors.LLMTimeoutError):
        await agent.run()


async def test_a_silent_model_that_is_deaf_too_does_not_hold_the_run() -> None:
    release = asyncio.Event()
    agent = await make_agent(deaf(release, say("late")), say("ok"), stall_timeout_s=0.01, max_retries=0)
    with pytest.raises(errors.LLMTimeoutError):
        await agent.run()
    assert await agent.run("again") == "ok"
    release.set()


@pytest.mark.parametrize(
    "show", [lambda stream: stream.text("x"), lambda stream: stream.alive()], ids=["text", "alive"]
)
async def test_a_model_that_keeps_giving_a_sign_of_life_is_not_cut(show: Any) -> None:
    async def talk(request: Any, stream: Any) -> Any:
        loop = asyncio.get_running_loop()
        for _ in range(6):
            tick = asyncio.Event()
            loop.call_later(0.02, tick.set)
            await tick.wait()
            show(stream)
        return await say("done")(request, stream)

    agent = await make_agent(talk, stall_timeout_s=0.1)
    assert await agent.run() == "done"


async def test_a_stop_of_a_silent_model_is_a_stop() -> None:
    agent = await make_agent(never(), stall_timeout_s=600)
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    assert await soon(run) == ""


async def test_the_first_mounted_provider_is_asked_unless_another_is_configured() -> None:
    agent = await make_agent(say("first"))
    await agent.coordinator.mount("providers", ScriptedProvider(say("second"), name="other"))
    assert await agent.run() == "first"

    agent = await make_agent(say("first"), default_provider="other")
    await agent.coordinator.mount("providers", ScriptedProvider(say("second"), name="other"))
    assert await agent.run() == "second"


async def test_a_configured_provider_that_is_not_mounted_is_named() -> None:
    agent = await make_agent(say("first"), default_provider="other")
    with pytest.raises(RuntimeError, match=r"'other'.*scripted"):
        await agent.run()


async def test_messages_written_during_a_failing_call_wait_for_the_next_run() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, fail(errors.ProviderUnavailableError("down"))), say("ok"), max_retries=0)
    run = agent.start()
    await agent.provider.asked(1)
    agent.inject("more")
    gate.set()
    with pytest.raises(errors.ProviderUnavailableError):
        await run
    with pytest.raises(RunFinished):
        agent.inject("too late")
    await agent.run("again")
    assert [text.endswith("- more") for _, text in await agent.told()].count(True) == 1
