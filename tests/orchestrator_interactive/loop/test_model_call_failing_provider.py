"""A provider that fails for good, stalls or is not there: the error keeps its type and is never an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    ScriptedProvider,
    after,
    call,
    deaf,
    echo,
    fail,
    make_agent,
    never,
    say,
    soon,
    streaming,
    use,
)

from orchestrator_interactive import RunFinished
from orchestrator_interactive.kernel.contracts import errors

if TYPE_CHECKING:
    from typing import Any

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
    "show", [lambda stream: stream.text("x"), lambda stream: stream.heartbeat()], ids=["text", "alive"]
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
