"""A request that the model finds too long is repeated with less of the conversation, once in a run."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import Agent, ScriptedProvider, call, echo, fail, make_agent, returning, say, text_of, told, use

from orchestrator_interactive.kernel import ResponseStream
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse
from orchestrator_interactive.transcript.rows import estimate

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


def within_window(step: Step) -> Step:
    """Fail where the request does not fit the window of the model, which the provider does not report."""

    async def strict(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        if _size(request) > WINDOW:
            raise TOO_LONG
        return await step(request, stream)

    return strict


async def _agent(*steps: Step, **more: Any) -> Agent:
    """An agent whose conversation is larger than the window, so that the first request fails."""
    agent = await make_agent(*map(within_window, [say("never said"), *steps]), **more)
    await agent.context.set_messages(PAST)
    return agent


async def test_the_request_is_repeated_with_less_and_the_conversation_stays_whole() -> None:
    agent = await _agent(say("ok"), max_retries=0)
    agent.events.listen(agent.hooks, "provider:error", "provider:retry", "context:pre_compact")
    assert await agent.run("and now?") == "ok"
    assert _too_long(agent) == [True, False]
    assert text_of(agent.provider.sent()[-1]) == "and now?"
    *before, prompt, answer = await agent.history()
    assert before == PAST
    assert told([prompt, answer]) == [("user", "and now?"), ("assistant", "ok")]
    assert agent.events.names() == ["provider:error", "context:pre_compact"]
    assert agent.events.of("provider:error")[0]["error"] is TOO_LONG
    seen = [event for event in agent.progress.names() if event in {"compacting", "retrying", "thinking"}]
    assert seen == ["thinking", "thinking", "compacting"]


async def test_a_request_that_is_too_long_even_then_fails_the_run() -> None:
    agent = await make_agent(fail(TOO_LONG), fail(errors.ContextLengthError("still")), say("never said"))
    await agent.context.set_messages(PAST)
    with pytest.raises(errors.ContextLengthError, match="still"):
        await agent.run()
    assert len(agent.provider.requests) == 2
    assert agent.complete()["status"] == "error"


async def test_the_smaller_budget_stays_for_the_run_and_for_the_next() -> None:
    steps = call(use("echo", "a", text="x")), call(use("echo", "b", text="y")), say("ok"), say("good")
    agent = await _agent(*steps, tools=[echo()])
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
    agent = await _agent(fail(errors.AuthenticationError("who?")))
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
    agent = await _agent(fail(errors.ProviderUnavailableError("down")), say("ok"), retry_base_delay_s=0)
    agent.events.listen(agent.hooks, "provider:error").act_on("provider:error", lambda: agent.inject("be brief"))
    assert await agent.run() == "ok"
    assert text_of(agent.provider.sent(1)[-1]).endswith("- be brief")
    assert [retry["attempt"] for retry in agent.progress.of("retrying")] == [1]


async def test_a_stop_during_the_compaction_ends_the_run() -> None:
    agent = await _agent()
    agent.progress.act_on("compacting", agent.stop)
    assert await agent.run() == ""
    assert agent.complete()["status"] == "cancelled"
    assert len(agent.provider.requests) == 1
