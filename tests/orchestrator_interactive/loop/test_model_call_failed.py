"""A failed model call: its report, the fallback to another provider, and a request that is too long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents.provider import ScriptedProvider, answer, call, deaf, fail, never, say, streaming, use
from agents.rows import text_of, told
from agents.session import Agent, make_agent
from agents.tools import echo, returning
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ResponseStream
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    ReasoningBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from orchestrator_interactive.transcript.rows import estimate

DOWN = errors.ProviderUnavailableError("down")


def remember(**more: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection="remember", ephemeral=True, **more)


def _count(request: ChatRequest) -> int:
    return sum(message.model_dump_json().count("remember") for message in request.messages)


class FaultyProvider(ScriptedProvider):
    """A provider with one method that always raises."""

    def __init__(self, faulty: str, *steps: Any, error: BaseException | None = None) -> None:
        super().__init__(*steps, name="faulty")
        self._error = error or TypeError("not today")
        setattr(self, faulty, self._raise)

    def _raise(self, *_: Any) -> Any:
        raise self._error


class UnparsedProvider(ScriptedProvider):
    """A provider that returns dictionaries in place of tool calls."""

    def parse_tool_calls(self, _response: ChatResponse) -> Any:
        return [{"id": "c", "name": "echo", "arguments": {}}]


class AsyncParser(ScriptedProvider):
    async def parse_tool_calls(self, _response: ChatResponse) -> Any:  # type: ignore[override]
        return []


class Unranked(ScriptedProvider):
    @property
    def priority(self) -> int:
        raise RuntimeError("no rank")


class TestAFaultyProvider:
    @pytest.mark.parametrize("error", [TypeError("not today"), SystemExit(3)], ids=repr)
    @pytest.mark.parametrize("faulty", ["get_info", "complete", "parse_tool_calls"])
    async def test_another_provider_answers(self, faulty: str, error: BaseException) -> None:
        agent = await make_agent(say("fine"), default_provider="faulty", retry_base_delay_s=0)
        provider = FaultyProvider(faulty, *[say("of the faulty one")] * 4, error=error)
        await agent.coordinator.mount("providers", provider)
        assert await agent.run() == "fine"
        assert await agent.told() == [("user", "go"), ("assistant", "fine")]
        assert [data["provider"] for data in agent.progress.of("fallback")] == ["faulty"]

    @pytest.mark.parametrize(
        ("kind", "error"), [(UnparsedProvider, "returned a dict instead of a ToolCall"), (AsyncParser, "not iterable")]
    )
    async def test_another_provider_answers_if_its_tool_calls_cannot_be_read(self, kind: Any, error: str) -> None:
        agent = await make_agent(say("fine"), default_provider="faulty")
        await agent.coordinator.mount("providers", kind(say("of the faulty one"), name="faulty"))
        agent.on_hook("prompt:submit", remember())
        with capture_logs() as logs:
            assert await agent.run() == "fine"
        assert _count(agent.provider.requests[0]) == 1
        [line] = [each for each in logs if each["event"] == "provider.fallback"]
        assert line["provider"] == "faulty"
        assert error in line["error"]

    async def test_one_whose_priority_cannot_be_read_is_the_last(self) -> None:
        agent = await make_agent(provider=Unranked(say("of the faulty one"), name="faulty"))
        await agent.coordinator.mount("providers", ScriptedProvider(say("fine")))
        with capture_logs() as logs:
            assert await agent.run() == "fine"
        assert [each["provider"] for each in logs if each["event"] == "provider.priority_failed"] == ["faulty"]

    @pytest.mark.parametrize("faulty", ["get_info", "parse_tool_calls"])
    async def test_without_another_its_error_ends_the_run_and_the_next_run_starts(self, faulty: str) -> None:
        provider = FaultyProvider(faulty, say("never read"), say("fine"))
        agent = await make_agent(provider=provider)
        with pytest.raises(Exception, match="not today"):
            await agent.run()
        provider.__dict__.pop(faulty)
        provider.drop_the_rest()
        provider.add(say("fine"))
        assert await agent.run() == "fine"


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
        [failed] = agent.events.of("provider:error")
        assert failed["provider"] == "scripted"
        assert failed["error"] == {"type": type(error).__name__, "msg": str(error)}

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
    @in_virtual_time
    async def test_any_sign_of_life_starts_its_time_anew(self, sign: Any) -> None:
        async def talk(request: Any, stream: Any) -> Any:
            for _ in range(6):
                await asyncio.sleep(0.09)
                sign(stream)
            return await say("done")(request, stream)

        agent = await make_agent(talk, stall_timeout_s=0.1)
        assert await agent.run() == "done"


WHO = errors.AuthenticationError("who?")


async def _agent(*scripts: list[Any], **more: Any) -> tuple[Agent, list[ScriptedProvider]]:
    """An agent with a provider `one`, `two`, … for each script."""
    providers = [ScriptedProvider(*steps, name=name) for name, steps in zip(("one", "two", "three"), scripts)]  # noqa: B905
    agent = await make_agent(provider=providers[0], **{"max_retries": 0, **more})
    for provider in providers[1:]:
        await agent.coordinator.mount("providers", provider)
    return agent, providers


class TestTheOrder:
    async def test_the_next_mounted_one_answers_and_hooks_and_people_learn_of_it(self) -> None:
        agent, _ = await _agent([fail(WHO)], [say("ok")])
        agent.events.listen(agent.hooks, "provider:error", "provider:fallback", "provider:request")
        assert await agent.run() == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]
        assert [(event, data["provider"]) for event, data in agent.events.seen] == [
            ("provider:request", "one"),
            ("provider:error", "one"),
            ("provider:fallback", "one"),
            ("provider:request", "two"),
        ]
        fallback = {"provider": "one", "to": "two", "error": "who?"}
        assert agent.events.of("provider:fallback")[0].items() >= fallback.items()
        assert agent.progress.of("fallback") == [fallback]

    async def test_the_default_is_first_and_the_others_follow_as_they_were_mounted(self) -> None:
        agent, _ = await _agent([fail(DOWN)], [say("ok")], [fail(DOWN)], default_provider="three")
        assert await agent.run() == "ok"
        turns = [(data["provider"], data["to"]) for data in agent.progress.of("fallback")]
        assert turns == [("three", "one"), ("one", "two")]

    async def test_each_is_first_retried_as_often_as_is_configured(self) -> None:
        down = fail(DOWN)
        agent, _ = await _agent([down] * 3, [down, down, say("ok")], max_retries=2, retry_base_delay_s=0)
        assert await agent.run() == "ok"
        retries = [(data["provider"], data["attempt"]) for data in agent.progress.of("retrying")]
        assert retries == [("one", 1), ("one", 2), ("two", 1), ("two", 2)]

    @pytest.mark.parametrize(
        "error",
        [WHO, errors.RateLimitError("tomorrow", retry_after=86_400), errors.LLMError("odd")],
        ids=lambda error: type(error).__name__,
    )
    async def test_after_an_error_that_is_not_retryable_the_next_one_is_asked_at_once(self, error: Exception) -> None:
        agent, _ = await _agent([fail(error)], [say("ok")], max_retries=3, retry_base_delay_s=60)
        assert await agent.run() == "ok"
        assert agent.progress.of("retrying") == []

    async def test_it_stays_for_the_run_and_the_next_run_begins_with_the_first(self) -> None:
        steps = [call(use("echo", "a")), call(use("echo", "b")), say("ok")]
        agent, (one, two) = await _agent([fail(WHO), say("back")], steps, tools=[echo()])
        assert await agent.run() == "ok"
        assert [len(one.requests), len(two.requests)] == [1, 3]
        assert await agent.run("again") == "back"
        assert [text_of(row) for row in one.sent()] == ["go", "", "echo", "", "echo", "ok", "again"]

    async def test_when_all_fail_the_last_error_is_that_of_the_run(self) -> None:
        agent, _ = await _agent([fail(DOWN)], [fail(WHO)])
        with pytest.raises(errors.AuthenticationError) as caught:
            await agent.run()
        assert caught.value is WHO
        assert await agent.told() == [("user", "go")]

    @pytest.mark.parametrize(
        "error",
        [errors.InvalidRequestError("bad"), errors.ContextLengthError("long")],
        ids=lambda error: type(error).__name__,
    )
    async def test_what_every_provider_would_refuse_is_not_sent_to_another(self, error: Exception) -> None:
        agent, (_, two) = await _agent([fail(error)] * 4, [say("never said")])
        with pytest.raises(type(error)) as caught:
            await agent.run()
        assert caught.value is error
        assert two.requests == []

    async def test_what_a_content_filter_rejects_is_not_sent_to_another(self) -> None:
        agent, (_, two) = await _agent([fail(errors.ContentFilterError("no"))], [say("never said")])
        await agent.run()
        assert agent.complete()["reason"] == "refusal"
        assert two.requests == []

    async def test_a_bug_in_a_provider_is_a_failure_and_the_first_failure_stays_its_cause(self) -> None:
        broken = ValueError("a bug in the provider")
        agent, _ = await _agent([fail(DOWN)], [fail(broken)], [say("ok")])
        assert await agent.run() == "ok"
        agent, _ = await _agent([fail(DOWN)], [fail(broken)])
        with pytest.raises(ValueError, match="a bug") as caught:
            await agent.run()
        assert caught.value.__cause__ is DOWN

    async def test_a_request_beyond_the_limit_of_an_account_is_sent_to_another_provider(self) -> None:
        too_large = errors.ContextLengthError("Request too large", status_code=429)
        agent, (_, two) = await _agent([fail(too_large)] * 4, [say("the other account")])
        assert await agent.run("hi") == "the other account"
        assert len(two.requests) == 1

    async def test_a_stop_at_the_fallback_asks_no_other_provider(self) -> None:
        agent, (_, two) = await _agent([fail(WHO)], [say("never said")])
        agent.progress.act_on("fallback", agent.stop)
        assert await agent.run() == ""
        assert two.requests == []
        assert agent.complete()["status"] == "cancelled"

    async def test_a_message_at_the_fallback_is_in_the_request_to_the_next_one(self) -> None:
        agent, (_, two) = await _agent([fail(WHO)], [say("ok")])
        agent.progress.act_on("fallback", lambda: agent.inject("!one more thing"))
        assert await agent.run() == "ok"
        assert text_of(two.sent()[-1]).endswith("- !one more thing")


class TestTheConversation:
    async def test_the_next_one_gets_the_same_messages_and_tools(self) -> None:
        agent, (one, two) = await _agent([call(use("echo", "a")), fail(WHO)], [say("ok")], tools=[echo()])
        await agent.run()
        assert two.sent() == one.sent()
        assert two.requests[0].tools == one.requests[-1].tools

    async def test_thinking_of_either_is_in_a_form_that_both_take(self) -> None:
        signed, unsigned = ThinkingBlock(thinking="hm", signature="by one"), ThinkingBlock(thinking="lost")
        reasoned = ReasoningBlock(content=["by two"], summary=[])
        use_a, use_b = (ToolCallBlock(id=i, name="echo", input={}) for i in "ab")
        second = [answer(unsigned, reasoned, use_b), answer(unsigned, TextBlock(text="ok"))]
        agent, (one, _) = await _agent([answer(signed, use_a), fail(WHO), say("back")], second, tools=[echo()])
        assert await agent.run() == "ok"
        assert await agent.run("again") == "back"
        kinds = [[block["type"] for block in row["content"]] for row in one.sent() if row["role"] == "assistant"]
        assert kinds == [["thinking", "tool_call"], ["reasoning", "tool_call"], ["text"]]

    async def test_a_forced_answer_stays_forced_without_tools_for_one_that_has_no_tool_choice(self) -> None:
        worker = echo("dispatch_worker")
        agent, (one,) = await _agent([call(use("dispatch_worker", "a")), fail(WHO)], tools=[worker])
        two = ScriptedProvider(say("sent"), name="two", tool_choice=False)
        await agent.coordinator.mount("providers", two)
        assert await agent.run() == "sent"
        assert [bool(one.requests[1].tools), one.requests[1].tool_choice] == [True, "none"]
        assert [two.requests[0].tools, two.requests[0].tool_choice] == [None, None]

    async def test_calls_are_parsed_by_the_provider_that_made_them(self) -> None:
        class Calls(ScriptedProvider):
            def parse_tool_calls(self, response: Any) -> Any:
                return [use("echo", "a", text="mine")] if response.text == "use it" else []

        agent, _ = await _agent([fail(WHO)], tools=[echo()])
        await agent.coordinator.mount("providers", Calls(say("use it"), say("ok"), name="two"))
        assert await agent.run() == "ok"
        assert ("tool", "mine") in await agent.told()

    async def test_an_ephemeral_injection_goes_with_the_request_to_the_next_one(self) -> None:
        second = [call(use("echo", "b")), say("ok")]
        agent, (_, two) = await _agent([call(use("echo", "a")), fail(WHO)], second, tools=[echo()])
        remember = HookResult(action="inject_context", context_injection="remember", ephemeral=True)
        agent.progress.act_on("fallback", agent.on_hook("tool:post", remember))
        await agent.run()
        assert ["remember" in request.model_dump_json() for request in two.requests] == [True, False]


Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]


TOO_LONG = errors.ContextLengthError("prompt is too long")


WINDOW = 2_000


PAST = [
    {"role": role, "content": f"{role} {number}: " + "words " * 60}
    for number in range(20)
    for role in ("user", "assistant")
]


def _size(request: ChatRequest) -> int:
    return sum(estimate(message.model_dump(exclude_none=True)) for message in request.messages)


def _too_long(agent: Agent) -> list[bool]:
    return [_size(request) > WINDOW for request in agent.provider.requests]


def within_window(step: Step, window: int = WINDOW) -> Step:
    """Fail where the request does not fit the window of the model, which the provider does not report."""

    async def strict(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        if _size(request) > window:
            raise TOO_LONG
        return await step(request, stream)

    return strict


async def _agent_beyond_window(*steps: Step, **more: Any) -> Agent:
    """An agent whose conversation is larger than the window, so that the first request fails."""
    agent = await make_agent(*map(within_window, [say("never said"), *steps]), **more)
    await agent.context.set_messages(PAST)
    return agent


async def test_the_request_is_repeated_with_less_and_the_conversation_stays_whole() -> None:
    agent = await _agent_beyond_window(say("ok"), max_retries=0)
    agent.events.listen(agent.hooks, "provider:error", "provider:retry", "context:pre_compact")
    assert await agent.run("and now?") == "ok"
    assert _too_long(agent) == [True, False]
    assert text_of(agent.provider.sent()[-1]) == "and now?"
    *before, prompt, answer = await agent.history()
    assert before == PAST
    assert told([prompt, answer]) == [("user", "and now?"), ("assistant", "ok")]
    assert agent.events.names() == ["provider:error", "context:pre_compact"]
    assert agent.events.of("provider:error")[0]["error"]["type"] == "ContextLengthError"
    seen = [event for event in agent.progress.names() if event in {"compacting", "retrying", "thinking"}]
    assert seen == ["thinking", "thinking", "compacting"]


async def test_a_request_far_beyond_the_window_is_reduced_several_times() -> None:
    agent = await make_agent(*[within_window(say("ok"), int(WINDOW * 0.8))] * 4, max_retries=0)
    await agent.context.set_messages(PAST)
    assert await agent.run("and now?") == "ok"
    sizes = [_size(request) for request in agent.provider.requests]
    assert len(sizes) > 2
    assert sizes == sorted(sizes, reverse=True)


async def test_a_request_that_is_too_long_even_then_fails_the_run() -> None:
    agent = await make_agent(*[fail(TOO_LONG)] * 3, fail(errors.ContextLengthError("still")), say("never said"))
    await agent.context.set_messages(PAST)
    with pytest.raises(errors.ContextLengthError, match="still"):
        await agent.run()
    assert len(agent.provider.requests) == 4
    assert agent.complete()["status"] == "error"


async def test_the_smaller_budget_stays_for_the_run_and_for_the_next() -> None:
    steps = call(use("echo", "a", text="x")), call(use("echo", "b", text="y")), say("ok"), say("good")
    agent = await _agent_beyond_window(*steps, tools=[echo()])
    assert await agent.run("and now?") == "ok"
    assert [text_of(row) for row in agent.provider.sent() if row["role"] == "tool"] == ["x", "y"]
    assert await agent.run("again") == "good"
    assert _too_long(agent) == [True, False, False, False, False]


async def test_a_later_run_may_make_it_smaller_once_more() -> None:
    agent = await make_agent(fail(TOO_LONG), say("ok"), fail(TOO_LONG), say("good"))
    await agent.context.set_messages(PAST)
    await agent.run()
    assert await agent.run("again") == "good"
    sizes = [_size(request) for request in agent.provider.requests]
    assert sizes[0] > sizes[1] > sizes[3]


async def test_another_provider_that_takes_over_gets_the_whole_conversation() -> None:
    other = ScriptedProvider(say("ok"), name="other")
    agent = await _agent_beyond_window(fail(errors.AuthenticationError("who?")))
    await agent.coordinator.mount("providers", other)
    assert await agent.run() == "ok"
    assert _too_long(agent) == [True, False]
    assert _size(other.requests[0]) > WINDOW


async def test_in_the_middle_of_a_run_nothing_of_the_task_is_lost() -> None:
    steps = [call(use("look", "a")), call(use("look", "b")), say("never said"), say("ok")]
    agent = await make_agent(*map(within_window, steps), tools=[returning("row " * 700, "look")])
    await agent.context.set_messages(PAST[:8])
    agent.progress.act_on("tool:start", lambda: agent.inject("mind the gap"))
    assert await agent.run("look it up") == "ok"
    assert _too_long(agent) == [False, False, True, False]
    sent = agent.provider.sent()
    assert sent[-1]["role"] == "tool"
    texts = [text_of(row) for row in sent if row["role"] == "user"]
    assert "look it up" in texts
    assert any(text.endswith("- mind the gap") for text in texts)


async def test_a_message_meanwhile_and_a_later_retry_work_as_always() -> None:
    agent = await _agent_beyond_window(fail(errors.ProviderUnavailableError("down")), say("ok"), retry_base_delay_s=0)
    agent.events.listen(agent.hooks, "provider:error").act_on("provider:error", lambda: agent.inject("be brief"))
    assert await agent.run() == "ok"
    assert text_of(agent.provider.sent(1)[-1]).endswith("- be brief")
    assert [retry["attempt"] for retry in agent.progress.of("retrying")] == [1]


async def test_a_stop_during_the_compaction_ends_the_run() -> None:
    agent = await _agent_beyond_window()
    agent.progress.act_on("compacting", agent.stop)
    assert await agent.run() == ""
    assert agent.complete()["status"] == "cancelled"
    assert len(agent.provider.requests) == 1
