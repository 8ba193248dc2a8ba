"""A failed model call keeps the type of its error, leaves no trace in the conversation, and loses nothing of it."""

import asyncio
from typing import Any

import pytest
from agents import call, deaf, echo, fail, make_agent, never, say, streaming, text_of, use

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, TextBlock

DOWN = errors.ProviderUnavailableError("down")


def remember(**more: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection="remember", ephemeral=True, **more)


def _count(request: ChatRequest) -> int:
    return sum(message.model_dump_json().count("remember") for message in request.messages)


class TestARepeatedCall:
    async def test_its_request_is_the_same_and_what_it_said_is_said_once(self) -> None:
        agent = await make_agent(
            fail(DOWN),
            streaming("Once upon", TextBlock(text="Once upon"), then=fail(DOWN)),
            streaming("Once upon a time", then=say("Once upon a time")),
            retry_base_delay_s=0,
        )
        assert await agent.run() == "Once upon a time"
        assert await agent.told() == [("user", "go"), ("assistant", "Once upon a time")]
        assert agent.shown() == []
        assert agent.provider.sent(0) == agent.provider.sent(1) == agent.provider.sent(2)

    async def test_an_ephemeral_injection_of_a_tools_hook_is_in_each_repetition_once(self) -> None:
        steps = [call(use("echo", "a")), fail(DOWN), fail(DOWN), call(use("echo", "b")), say("ok")]
        agent = await make_agent(*steps, tools=[echo()], retry_base_delay_s=0)
        agent.progress.act_on("retrying", agent.on_hook("tool:post", remember()))
        await agent.run()
        assert list(map(_count, agent.provider.requests)) == [0, 1, 1, 1, 0]
        assert "remember" not in str(await agent.told())

    async def test_an_injection_at_the_end_of_the_last_result_stays_there(self) -> None:
        steps = [call(use("echo", "a", text="x")), fail(DOWN), say("ok")]
        agent = await make_agent(*steps, tools=[echo()], retry_base_delay_s=0)
        agent.on_hook("tool:post", remember(append_to_last_tool_result=True))
        await agent.run()
        assert [text_of(agent.provider.sent(i)[-1]) for i in (1, 2)] == ["x\n\nremember"] * 2

    @pytest.mark.parametrize(("event", "counts"), [("provider:request", [1, 1, 1]), ("provider:error", [0, 1, 2])])
    async def test_an_ephemeral_injection_of_its_own_hooks_is_there_once_per_event(
        self, event: str, counts: list[int]
    ) -> None:
        agent = await make_agent(fail(DOWN), fail(DOWN), say("ok"), retry_base_delay_s=0)
        agent.on_hook(event, remember())
        await agent.run()
        assert list(map(_count, agent.provider.requests)) == counts

    async def test_a_forced_answer_stays_forced(self) -> None:
        steps = [call(use("dispatch_worker", "a")), fail(DOWN), say("sent")]
        agent = await make_agent(*steps, tools=[echo("dispatch_worker")], retry_base_delay_s=0)
        await agent.run()
        assert [request.tool_choice for request in agent.provider.requests] == [None, "none", "none"]


ERRORS = [
    errors.RateLimitError("slow down", retry_after=7.0),
    errors.AuthenticationError("who?"),
    errors.ContentFilterError("no"),
    errors.InvalidRequestError("bad"),
    DOWN,
    errors.LLMTimeoutError("slow"),
    ValueError("a bug in the provider"),
]


class TestAFailedRun:
    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    async def test_its_error_reaches_the_caller_as_it_is_and_hooks_once(self, error: Exception) -> None:
        agent = await make_agent(fail(error), max_retries=0)
        agent.events.listen(agent.hooks, "provider:error", "provider:response")
        with pytest.raises(type(error)) as caught:
            await agent.run()
        assert caught.value is error
        assert await agent.told() == [("user", "go")]
        assert agent.complete()["status"] == "error"
        assert agent.events.names() == ["provider:error"]
        assert agent.events.seen[0][1].items() >= {"provider": "scripted", "error": error}.items()

    async def test_an_error_after_tools_leaves_a_history_for_the_next_run(self) -> None:
        steps = [call(use("echo", "a")), fail(errors.AuthenticationError("who?")), say("ok")]
        agent = await make_agent(*steps, tools=[echo()])
        with pytest.raises(errors.AuthenticationError):
            await agent.run()
        assert await agent.run("again") == "ok"
        assert agent.provider.prefix_breaks() == []

    async def test_a_provider_that_raises_a_cancellation_has_failed(self) -> None:
        agent = await make_agent(fail(asyncio.CancelledError()), max_retries=0)
        with pytest.raises(errors.ProviderUnavailableError):
            await agent.run()


class TestAStalledModel:
    @pytest.mark.parametrize("said", [(), ("so far",)])
    async def test_it_is_a_timeout(self, said: tuple[str, ...]) -> None:
        agent = await make_agent(streaming(*said, then=never()), stall_timeout_s=0.01, max_retries=0)
        with pytest.raises(errors.LLMTimeoutError) as caught:
            await agent.run()
        assert caught.value.retryable
        assert agent.provider.cancelled == 1

    async def test_one_that_ignores_its_cancellation_does_not_hold_the_run(self) -> None:
        release = asyncio.Event()
        agent = await make_agent(deaf(release, say("late")), say("ok"), stall_timeout_s=0.01, max_retries=0)
        with pytest.raises(errors.LLMTimeoutError):
            await agent.run()
        assert await agent.run("again") == "ok"
        release.set()

    @pytest.mark.parametrize("sign", [lambda stream: stream.text("x"), lambda stream: stream.heartbeat()], ids="ta")
    async def test_any_sign_of_life_starts_its_time_anew(self, sign: Any) -> None:
        async def talk(request: Any, stream: Any) -> Any:
            for _ in range(6):
                tick = asyncio.Event()
                asyncio.get_running_loop().call_later(0.02, tick.set)
                await tick.wait()
                sign(stream)
            return await say("done")(request, stream)

        agent = await make_agent(talk, stall_timeout_s=0.1)
        assert await agent.run() == "done"
