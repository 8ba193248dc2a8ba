"""A request that the model finds too long is asked again with less of the conversation, once in a run."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import Agent, ScriptedProvider, call, echo, fail, make_agent, returning, say, text_of, told, use

from orchestrator_interactive.kernel import ResponseStream
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse
from orchestrator_interactive.transcript.tokens import estimate

Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]


TOO_LONG = errors.ContextLengthError("prompt is too long")


WINDOW = 2_000


PAST = [
    {"role": role, "content": f"{role} {number}: " + "words " * 60}
    for number in range(20)
    for role in ("user", "assistant")
]


def within_window(step: Step) -> Step:
    """Do this where the request fits the model's window, which it has told nobody."""

    async def strict(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        if _size(request) > WINDOW:
            raise TOO_LONG
        return await step(request, stream)

    return strict


async def _agent(*steps: Step, **more: Any) -> Agent:
    """An agent with a conversation behind it that is larger than the model's window."""
    agent = await make_agent(*map(within_window, steps), **more)
    await agent.context.set_messages(PAST)
    return agent


def _size(request: ChatRequest) -> int:
    return sum(estimate(message.model_dump(exclude_none=True)) for message in request.messages)


async def test_it_is_asked_again_with_less_and_answers() -> None:
    agent = await _agent(say("never said"), say("ok"))
    assert await agent.run("and now?") == "ok"
    first, second = agent.provider.requests
    assert _size(first) > WINDOW >= _size(second)
    assert text_of(agent.provider.sent()[-1]) == "and now?"


async def test_the_conversation_itself_stays_whole() -> None:
    agent = await _agent(say("never said"), say("ok"))
    await agent.run("and now?")
    *before, prompt, answer = await agent.history()
    assert before == PAST
    assert told([prompt, answer]) == [("user", "and now?"), ("assistant", "ok")]


async def test_people_see_that_it_is_compacted_and_no_retry() -> None:
    agent = await _agent(say("never said"), say("ok"), max_retries=0)
    agent.events.listen(agent.hooks, "provider:error", "provider:retry", "context:pre_compact")
    await agent.run()
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
    assert agent.progress.of("complete")[0]["status"] == "error"


async def test_another_provider_is_not_asked_for_it() -> None:
    other = ScriptedProvider(say("never said"), name="other")
    agent = await make_agent(fail(TOO_LONG), fail(TOO_LONG))
    await agent.coordinator.mount("providers", other)
    with pytest.raises(errors.ContextLengthError):
        await agent.run()
    assert other.requests == []


async def test_the_smaller_budget_stays_for_the_run() -> None:
    agent = await _agent(
        say("never said"), call(use("echo", "a", text="x")), call(use("echo", "b", text="y")), say("ok"), tools=[echo()]
    )
    assert await agent.run("and now?") == "ok"
    assert [_size(request) > WINDOW for request in agent.provider.requests] == [True, False, False, False]
    assert [text_of(row) for row in agent.provider.sent() if row["role"] == "tool"] == ["x", "y"]


async def test_the_next_run_remembers_what_was_too_long_for_this_provider() -> None:
    agent = await _agent(say("never said"), say("ok"), say("good"))
    await agent.run()
    assert await agent.run("again") == "good"
    assert [_size(request) > WINDOW for request in agent.provider.requests] == [True, False, False]


async def test_a_later_run_may_make_it_smaller_once_more() -> None:
    agent = await make_agent(fail(TOO_LONG), say("ok"), fail(TOO_LONG), say("good"))
    await agent.context.set_messages(PAST)
    await agent.run()
    assert await agent.run("again") == "good"
    sizes = [_size(request) for request in agent.provider.requests]
    assert sizes[0] > sizes[1] > sizes[3]


async def test_another_provider_that_takes_over_is_shown_everything() -> None:
    other = ScriptedProvider(say("ok"), name="other")
    agent = await _agent(say("never said"), fail(errors.AuthenticationError("who?")))
    await agent.coordinator.mount("providers", other)
    assert await agent.run() == "ok"
    assert [_size(request) > WINDOW for request in (*agent.provider.requests, *other.requests)] == [True, False, True]


async def test_it_may_happen_in_the_middle_of_a_run_and_nothing_of_the_task_is_lost() -> None:
    look = returning("row " * 700, "look")
    agent = await make_agent(
        *map(within_window, [call(use("look", "a")), call(use("look", "b")), say("never said"), say("ok")]),
        tools=[look],
    )
    await agent.context.set_messages(PAST[:8])
    agent.progress.act_on("tool:start", lambda: agent.inject("mind the gap"))
    assert await agent.run("look it up") == "ok"
    assert [_size(request) > WINDOW for request in agent.provider.requests] == [False, False, True, False]
    shown = agent.provider.sent()
    assert shown[-1]["role"] == "tool"
    said = [text_of(row) for row in shown if row["role"] == "user"]
    assert "look it up" in said
    assert any(text.endswith("- mind the gap") for text in said)


async def test_what_fails_for_other_reasons_later_is_repeated_all_the_same() -> None:
    agent = await _agent(
        say("never said"), fail(errors.ProviderUnavailableError("down")), say("ok"), retry_base_delay_s=0
    )
    assert await agent.run() == "ok"
    assert [retry["attempt"] for retry in agent.progress.of("retrying")] == [1]


async def test_what_is_written_meanwhile_is_in_the_smaller_request() -> None:
    agent = await _agent(say("never said"), say("ok"))
    agent.events.listen(agent.hooks, "provider:error").act_on("provider:error", lambda: agent.inject("be brief"))
    assert await agent.run() == "ok"
    assert text_of(agent.provider.sent()[-1]).endswith("- be brief")


async def test_a_stop_while_it_is_compacted_ends_the_run() -> None:
    agent = await _agent(say("never said"))
    agent.progress.act_on("compacting", agent.stop)
    assert await agent.run() == ""
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
    assert len(agent.provider.requests) == 1
