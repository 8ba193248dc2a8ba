"""A model call that failed, and may succeed later, is repeated: patiently, visibly, and open to people meanwhile.

While a run waits to ask a model again, people can write, steer and stop, and its tools go on."""

import asyncio
from typing import Any

import pytest
from agents import Agent, call, echo, fail, gated, make_agent, never, say, text_of, use
from virtual_time import Clock, in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import errors

DOWN = errors.ProviderUnavailableError("down")


class TestTheWait:
    @in_virtual_time
    async def test_it_doubles_from_time_to_time_up_to_half_a_minute_and_jitter_takes_up_to_a_half(self) -> None:
        clock = Clock()
        agent = await make_agent(*map(clock.on, [*[fail(DOWN)] * 7, say("ok")]), max_retries=7)
        assert await agent.start() == "ok"
        for wait_s, most_s in zip(clock.waits, [1, 2, 4, 8, 16, 30, 30], strict=True):
            assert most_s / 2 <= wait_s <= most_s

    @in_virtual_time
    async def test_jitter_makes_it_another_one_each_time(self) -> None:
        clock = Clock()
        agent = await make_agent(max_retries=1)
        for _ in range(10):
            agent.provider.add(clock.on(fail(DOWN)), clock.on(say("ok")))
            await agent.start()
        assert len(set(clock.waits[::2])) > 1

    @in_virtual_time
    async def test_it_begins_with_what_is_configured(self) -> None:
        clock = Clock()
        agent = await make_agent(*map(clock.on, [fail(DOWN), fail(DOWN), say("ok")]), retry_base_delay_s=10)
        await agent.start()
        assert [5 <= clock.waits[0] <= 10, 10 <= clock.waits[1] <= 20] == [True, True]

    @in_virtual_time
    async def test_a_time_that_the_provider_names_is_kept_whatever_the_back_off(self) -> None:
        clock = Clock()
        limit = errors.RateLimitError("slow down", retry_after=47)
        agent = await make_agent(*map(clock.on, [fail(limit), fail(limit), say("ok")]))
        assert await agent.start() == "ok"
        for wait_s, most_jitter_s in zip(clock.waits, [0.5, 1.0], strict=True):
            assert 47 <= wait_s <= 47 + most_jitter_s

    @in_virtual_time
    async def test_one_who_wants_more_than_a_minute_is_not_waited_for(self) -> None:
        error = errors.RateLimitError("come back tomorrow", retry_after=61)
        agent = await make_agent(fail(error))
        with pytest.raises(errors.RateLimitError) as caught:
            await agent.start()
        assert caught.value is error
        assert agent.progress.of("retrying") == []

    @in_virtual_time
    async def test_a_time_that_has_passed_is_none_at_all(self) -> None:
        clock = Clock()
        agent = await make_agent(
            *map(clock.on, [fail(errors.RateLimitError("slow down", retry_after=-3)), say("ok")]),
        )
        assert await agent.start() == "ok"
        assert agent.progress.of("retrying")[0]["delay_s"] == clock.waits[0] >= 0

    @pytest.mark.parametrize("odd_s", [float("nan"), float("inf")])
    async def test_a_time_that_never_comes_is_not_waited_for(self, odd_s: float) -> None:
        agent = await make_agent(fail(errors.RateLimitError("slow down", retry_after=odd_s)))
        with pytest.raises(errors.RateLimitError):
            await agent.run()


class TestHowOften:
    async def test_three_times_unless_it_is_configured(self) -> None:
        agent = await make_agent(*[fail(DOWN)] * 4, retry_base_delay_s=0)
        with pytest.raises(errors.ProviderUnavailableError) as caught:
            await agent.run()
        assert caught.value is DOWN
        assert len(agent.provider.requests) == 4

    async def test_as_often_as_anybody_may_configure(self) -> None:
        agent = await make_agent(*[fail(DOWN)] * 1_100, say("ok"), retry_base_delay_s=0, max_retries=2_000)
        assert await agent.run() == "ok"

    async def test_not_at_all_where_that_is_configured(self) -> None:
        agent = await make_agent(fail(DOWN), max_retries=0)
        with pytest.raises(errors.ProviderUnavailableError):
            await agent.run()
        assert agent.progress.of("retrying") == []

    async def test_an_answer_makes_the_count_begin_anew(self) -> None:
        agent = await make_agent(
            fail(DOWN),
            fail(DOWN),
            call(use("echo", "a")),
            fail(DOWN),
            fail(DOWN),
            say("ok"),
            tools=[echo()],
            max_retries=2,
            retry_base_delay_s=0,
        )
        assert await agent.run() == "ok"
        assert [told["attempt"] for told in agent.progress.of("retrying")] == [1, 2, 1, 2]

    async def test_a_failure_is_no_iteration(self) -> None:
        agent = await make_agent(
            fail(DOWN), call(use("echo", "a")), fail(DOWN), say("ok"), tools=[echo()], retry_base_delay_s=0
        )
        await agent.run()
        assert agent.progress.of("complete")[0]["iterations"] == 2
        assert [told["iteration"] for told in agent.progress.of("thinking")] == [1, 1, 2, 2]

    @pytest.mark.parametrize(
        "error",
        [
            errors.AuthenticationError("who?"),
            errors.ContentFilterError("no"),
            errors.InvalidRequestError("bad"),
            errors.LLMError("odd"),
            errors.RateLimitError("for good", retryable=False),
            ValueError("a bug in the provider"),
        ],
        ids=lambda error: type(error).__name__,
    )
    async def test_what_asking_again_cannot_help_is_not_repeated(self, error: Exception) -> None:
        agent = await make_agent(fail(error), say("never said"))
        with pytest.raises(type(error)) as caught:
            await agent.run()
        assert caught.value is error
        assert len(agent.provider.requests) == 1

    async def test_what_says_of_itself_that_it_may_succeed_later_is_repeated(self) -> None:
        agent = await make_agent(
            fail(errors.InvalidRequestError("a hiccup", retryable=True)), say("ok"), retry_base_delay_s=0
        )
        assert await agent.run() == "ok"

    async def test_a_model_that_was_silent_too_long_is_asked_again(self) -> None:
        agent = await make_agent(never(), say("ok"), stall_timeout_s=0.01, retry_base_delay_s=0)
        assert await agent.run() == "ok"
        assert agent.progress.of("retrying")[0]["reason"] == "timeout"


class TestWhatIsTold:
    async def test_hooks_hear_of_the_error_and_of_the_retry(self) -> None:
        agent = await make_agent(fail(DOWN), say("ok"), retry_base_delay_s=0)
        agent.events.listen(agent.hooks, "provider:request", "provider:error", "provider:retry", "provider:response")
        await agent.run()
        assert agent.events.names() == [
            "provider:request",
            "provider:error",
            "provider:retry",
            "provider:request",
            "provider:response",
        ]
        [error], [retry] = agent.events.of("provider:error"), agent.events.of("provider:retry")
        assert error.items() >= {"provider": "scripted", "error": DOWN}.items()
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
    async def test_people_see_why_and_for_how_long(self, error: errors.LLMError, reason: str) -> None:
        agent = await make_agent(fail(error), say("ok"), retry_base_delay_s=0, max_retries=5)
        await agent.run()
        assert agent.progress.of("retrying") == [
            {
                "provider": "scripted",
                "attempt": 1,
                "max_attempts": 5,
                "delay_s": 0.0,
                "error": str(error),
                "reason": reason,
            }
        ]

    async def test_a_hook_cannot_forbid_what_has_happened(self) -> None:
        agent = await make_agent(fail(DOWN), say("ok"), retry_base_delay_s=0)
        for event in ("provider:error", "provider:retry"):
            agent.on_hook(event, HookResult(action="deny", reason="no more"))
        assert await agent.run() == "ok"


LONG_S = 30.0  # with jitter the wait is half of it at least


async def _waiting_agent(*steps: Any, **more: Any) -> tuple[Agent, asyncio.Task[str]]:
    """An agent whose model is down, so that it waits to ask it again."""
    agent = await make_agent(fail(DOWN), *steps, retry_base_delay_s=LONG_S, **more)
    run = agent.start()
    await agent.progress.reached("retrying")
    return agent, run


@in_virtual_time
async def test_what_people_write_during_the_wait_is_in_the_next_request() -> None:
    agent, run = await _waiting_agent(say("ok"))
    agent.inject("one")
    agent.inject("two")
    assert await run == "ok"
    assert text_of(agent.provider.sent(1)[-1]).endswith("- one\n- two")
    assert agent.provider.prefix_breaks() == []


@in_virtual_time
async def test_what_was_written_while_the_call_failed_is_in_the_next_request() -> None:
    agent = await make_agent(fail(DOWN), say("ok"))
    agent.progress.act_on("thinking", lambda: agent.inject("first"))
    agent.events.listen(agent.hooks, "provider:error").act_on("provider:error", lambda: agent.inject("second"))
    await agent.start()
    assert [text_of(row).endswith("- first\n- second") for row in agent.provider.sent(1)] == [False, True]


@in_virtual_time
async def test_an_urgent_message_waits_as_well_and_cuts_nothing() -> None:
    clock = Clock()
    agent = await make_agent(*map(clock.on, [fail(DOWN), say("ok")]), retry_base_delay_s=LONG_S)
    run = agent.start()
    await agent.progress.reached("retrying")
    agent.inject("!look here")
    assert await run == "ok"
    assert clock.waits[0] >= LONG_S / 2
    assert [len(agent.provider.requests), agent.provider.cancelled] == [2, 0]
    assert text_of(agent.provider.sent(1)[-1]).endswith("- !look here")


@in_virtual_time
async def test_a_message_can_be_edited_and_withdrawn_during_the_wait() -> None:
    agent, run = await _waiting_agent(say("ok"))
    agent.inject(Injection("blue", id="m1"))
    agent.inject(Injection("never mind", id="m2"))
    assert agent.coordinator.get_capability("orchestrator.edit_message")("m1", "red")
    assert agent.coordinator.get_capability("orchestrator.withdraw_message")("m2")
    await run
    assert text_of(agent.provider.sent(1)[-1]).endswith("]\n- red")


@pytest.mark.parametrize("immediate", [False, True])
@in_virtual_time
async def test_a_stop_ends_the_wait_at_once(immediate: bool) -> None:
    agent, run = await _waiting_agent()
    began_s = asyncio.get_running_loop().time()
    assert agent.stop(immediate=immediate)
    assert await run == ""
    assert asyncio.get_running_loop().time() - began_s < 1
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
    assert len(agent.provider.requests) == 1


@in_virtual_time
async def test_what_waits_when_the_wait_is_stopped_leads_the_next_run() -> None:
    agent, run = await _waiting_agent(say("ok"))
    agent.inject("more")
    agent.stop()
    await run
    assert agent.progress.of("complete")[0]["waiting"] == 1
    agent.token.reset()
    await agent.start("again")
    assert [text.endswith("- more") for _, text in await agent.told()] == [False, True, False, False]


@pytest.mark.parametrize("event", ["provider:error", "provider:retry"])
@in_virtual_time
async def test_a_stop_while_hooks_hear_of_the_failure_ends_the_run(event: str) -> None:
    agent = await make_agent(fail(DOWN), retry_base_delay_s=LONG_S)
    agent.events.listen(agent.hooks, event).act_on(event, agent.stop)
    agent.events.hold(event, asyncio.Event())
    assert await agent.start() == ""
    assert agent.progress.of("complete")[0]["status"] == "cancelled"


@in_virtual_time
async def test_a_cancelled_task_does_not_wait_and_says_that_it_was_cancelled() -> None:
    agent, run = await _waiting_agent()
    began_s = asyncio.get_running_loop().time()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.get_running_loop().time() - began_s < 1
    assert agent.progress.of("complete")[0]["status"] == "cancelled"


@in_virtual_time
async def test_a_tool_at_work_goes_on_during_the_wait_and_its_result_is_in_the_next_request() -> None:
    gate = asyncio.Event()
    slow = gated(gate, "slow")
    agent = await make_agent(call(use("slow", "a", text="done")), fail(DOWN), say("ok"), tools=[slow])
    run = agent.start()
    await slow.started()
    agent.inject("!what is it doing")
    await agent.progress.reached("retrying")
    gate.set()
    assert await run == "ok"
    assert "done" in text_of(agent.provider.sent(2)[-1])
    assert slow.cancelled == 0
