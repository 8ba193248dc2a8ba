"""A failed model call is repeated after a delay; messages, stops and tools work during the delay."""

import asyncio
from typing import Any

import pytest
from agents import Agent, call, echo, fail, gated, make_agent, never, say, text_of, use
from virtual_time import Clock, in_virtual_time

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import errors

DOWN = errors.ProviderUnavailableError("down")


class TestTheDelay:
    @in_virtual_time
    async def test_it_doubles_up_to_half_a_minute_and_jitter_takes_up_to_a_half(self) -> None:
        clock = Clock()
        agent = await make_agent(*map(clock.on, [*[fail(DOWN)] * 7, say("ok")]), max_retries=7)
        assert await agent.start() == "ok"
        for wait_s, most_s in zip(clock.waits, [1, 2, 4, 8, 16, 30, 30], strict=True):
            assert most_s / 2 <= wait_s <= most_s

    @in_virtual_time
    async def test_it_differs_each_time_and_begins_with_the_configured_one(self) -> None:
        clock = Clock()
        agent = await make_agent(max_retries=1, retry_base_delay_s=10)
        for _ in range(10):
            agent.provider.add(clock.on(fail(DOWN)), clock.on(say("ok")))
            await agent.start()
        assert len(set(clock.waits[::2])) > 1
        assert all(5 <= wait_s <= 10 for wait_s in clock.waits[::2])

    @in_virtual_time
    async def test_a_retry_after_of_the_provider_is_kept_whatever_the_back_off(self) -> None:
        clock = Clock()
        limit = errors.RateLimitError("slow down", retry_after=47)
        agent = await make_agent(*map(clock.on, [fail(limit), fail(limit), say("ok")]))
        assert await agent.start() == "ok"
        for wait_s, most_jitter_s in zip(clock.waits, [0.5, 1.0], strict=True):
            assert 47 <= wait_s <= 47 + most_jitter_s

    @pytest.mark.parametrize("retry_after_s", [61, float("nan"), float("inf")])
    @in_virtual_time
    async def test_a_retry_after_of_more_than_a_minute_is_not_waited_for(self, retry_after_s: float) -> None:
        error = errors.RateLimitError("come back tomorrow", retry_after=retry_after_s)
        agent = await make_agent(fail(error))
        with pytest.raises(errors.RateLimitError) as caught:
            await agent.start()
        assert caught.value is error
        assert agent.progress.of("retrying") == []

    @in_virtual_time
    async def test_a_negative_retry_after_is_no_wait(self) -> None:
        clock = Clock()
        agent = await make_agent(*map(clock.on, [fail(errors.RateLimitError("slow", retry_after=-3)), say("ok")]))
        assert await agent.start() == "ok"
        assert agent.progress.of("retrying")[0]["delay_s"] == clock.waits[0] >= 0


class TestTheAttempts:
    @pytest.mark.parametrize(
        ("config", "requests"), [({}, 4), ({"max_retries": 0}, 1), ({"max_retries": 1_100}, 1_101)]
    )
    async def test_there_are_three_or_as_many_as_are_configured(self, config: dict[str, int], requests: int) -> None:
        agent = await make_agent(*[fail(DOWN)] * requests, retry_base_delay_s=0, **config)
        with pytest.raises(errors.ProviderUnavailableError) as caught:
            await agent.start()
        assert caught.value is DOWN
        assert len(agent.provider.requests) == requests

    async def test_an_answer_starts_the_count_anew_and_a_failure_is_no_iteration(self) -> None:
        steps = [fail(DOWN), fail(DOWN), call(use("echo", "a")), fail(DOWN), fail(DOWN), say("ok")]
        agent = await make_agent(*steps, tools=[echo()], max_retries=2, retry_base_delay_s=0)
        assert await agent.run() == "ok"
        assert [data["attempt"] for data in agent.progress.of("retrying")] == [1, 2, 1, 2]
        assert agent.complete()["iterations"] == 2
        assert [data["iteration"] for data in agent.progress.of("thinking")] == [1, 1, 1, 2, 2, 2]

    @pytest.mark.parametrize(
        "error",
        [
            errors.AuthenticationError("who?"),
            errors.InvalidRequestError("bad"),
            errors.LLMError("odd"),
            errors.RateLimitError("for good", retryable=False),
            ValueError("a bug in the provider"),
        ],
        ids=lambda error: type(error).__name__,
    )
    async def test_an_error_that_is_not_retryable_is_not_repeated(self, error: Exception) -> None:
        agent = await make_agent(fail(error), say("never said"))
        with pytest.raises(type(error)) as caught:
            await agent.run()
        assert caught.value is error
        assert len(agent.provider.requests) == 1

    async def test_an_error_that_says_it_is_retryable_is_repeated(self) -> None:
        hiccup = errors.InvalidRequestError("a hiccup", retryable=True)
        agent = await make_agent(fail(hiccup), say("ok"), retry_base_delay_s=0)
        assert await agent.run() == "ok"

    async def test_a_stalled_model_is_asked_again(self) -> None:
        agent = await make_agent(never(), say("ok"), stall_timeout_s=0.01, retry_base_delay_s=0)
        assert await agent.run() == "ok"
        assert agent.progress.of("retrying")[0]["reason"] == "timeout"


class TestTheEvents:
    async def test_hooks_learn_of_the_error_and_of_the_retry_and_cannot_deny_them(self) -> None:
        agent = await make_agent(fail(DOWN), say("ok"), retry_base_delay_s=0)
        events = ["provider:request", "provider:error", "provider:retry", "provider:response"]
        agent.events.listen(agent.hooks, *events)
        for event in ("provider:error", "provider:retry"):
            agent.on_hook(event, HookResult(action="deny", reason="no more"))
        assert await agent.run() == "ok"
        assert agent.events.names() == [*events[:3], "provider:request", "provider:response"]
        [error], [retry] = agent.events.of("provider:error"), agent.events.of("provider:retry")
        assert (
            error.items()
            >= {"provider": "scripted", "error": {"type": "ProviderUnavailableError", "msg": "down"}}.items()
        )
        assert (error["retryable"], error["status_code"]) == (True, None)
        assert retry.items() >= {"provider": "scripted", "attempt": 1, "delay_s": 0.0, "error": "down"}.items()

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (errors.RateLimitError("slow down"), "rate_limit"),
            (errors.LLMTimeoutError("slow"), "timeout"),
            (errors.ProviderUnavailableError("down"), "unavailable"),
            (errors.LLMError("odd", retryable=True), "unavailable"),
        ],
        ids=lambda each: each if isinstance(each, str) else type(each).__name__,
    )
    async def test_progress_has_the_reason_and_the_delay(self, error: errors.LLMError, reason: str) -> None:
        agent = await make_agent(fail(error), say("ok"), retry_base_delay_s=0, max_retries=5)
        await agent.run()
        retrying = {"provider": "scripted", "attempt": 1, "max_attempts": 5, "delay_s": 0.0}
        assert agent.progress.of("retrying") == [{**retrying, "error": str(error), "reason": reason}]


LONG_S = 30.0  # with jitter the delay is half of it at least


async def _waiting(*steps: Any) -> tuple[Agent, asyncio.Task[str]]:
    """A run that waits to ask its model again."""
    agent = await make_agent(fail(DOWN), *steps, retry_base_delay_s=LONG_S)
    run = agent.start()
    await agent.progress.reached("retrying")
    return agent, run


class TestDuringTheDelay:
    @in_virtual_time
    async def test_messages_since_the_failed_call_are_in_the_next_request(self) -> None:
        agent = await make_agent(fail(DOWN), say("ok"))
        agent.progress.act_on("thinking", lambda: agent.inject("one"))
        agent.events.listen(agent.hooks, "provider:error").act_on("provider:error", lambda: agent.inject("two"))
        agent.progress.act_on("retrying", lambda: agent.inject("three"))
        assert await agent.start() == "ok"
        assert text_of(agent.provider.sent(1)[-1]).endswith("]\n- one\n- two\n- three")
        assert agent.provider.prefix_breaks() == []

    @in_virtual_time
    async def test_an_urgent_message_waits_as_well(self) -> None:
        agent, run = await _waiting(say("ok"))
        agent.inject("!look here")
        began_s = asyncio.get_running_loop().time()
        assert await run == "ok"
        assert asyncio.get_running_loop().time() - began_s >= LONG_S / 2
        assert [len(agent.provider.requests), agent.provider.cancelled] == [2, 0]
        assert text_of(agent.provider.sent(1)[-1]).endswith("- !look here")

    @pytest.mark.parametrize("how", ["graceful", "immediate", "cancel"])
    @in_virtual_time
    async def test_a_stop_ends_the_wait_at_once(self, how: str) -> None:
        agent, run = await _waiting()
        began_s = asyncio.get_running_loop().time()
        if how == "cancel":
            run.cancel()
        else:
            agent.stop(immediate=how == "immediate")
        await asyncio.wait([run])
        assert asyncio.get_running_loop().time() - began_s < 1
        assert agent.complete()["status"] == "cancelled"
        assert len(agent.provider.requests) == 1

    @pytest.mark.parametrize("event", ["provider:error", "provider:retry"])
    @in_virtual_time
    async def test_a_stop_while_hooks_learn_of_the_failure_ends_the_run(self, event: str) -> None:
        agent = await make_agent(fail(DOWN), retry_base_delay_s=LONG_S)
        assert await agent.stopped(await agent.held_at(event)) == ""
        assert agent.complete()["status"] == "cancelled"

    @in_virtual_time
    async def test_a_running_tool_continues_and_its_result_is_in_the_next_request(self) -> None:
        gate = asyncio.Event()
        slow = gated(gate, "slow")
        agent = await make_agent(call(use("slow", "a", text="done")), fail(DOWN), say("ok"), tools=[slow])
        run = await agent.in_tool(slow)
        agent.inject("!what is it doing")
        await agent.progress.reached("retrying")
        gate.set()
        assert await run == "ok"
        assert "done" in text_of(agent.provider.sent(2)[-1])
        assert slow.cancelled == 0
