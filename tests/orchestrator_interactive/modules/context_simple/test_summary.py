"""The strategy "summary": its requests, its failures, and concurrent requests."""

import asyncio
import json
from typing import Any

import pytest
from agents import Milestones, deaf_to_one_cancel, soon
from context_rows import (
    a_context,
    a_coordinator,
    calls,
    is_note,
    late,
    pending,
    problems,
    result,
    said,
    size,
    steer,
    talk,
    thinking,
    tool_steps,
    user,
)
from context_summaries import PAIR, ROWS, MountedContext, SummaryProvider, mounted, note_of

from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.contracts.errors import ContextLengthError, RateLimitError
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, TextBlock, Usage
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.testing import EventRecorder
from orchestrator_interactive.transcript.rows import is_prompt

MORE = tool_steps(40, 70)


async def test_a_summary_replaces_the_omitted_rows_in_the_view_only() -> None:
    there, provider = await mounted(*ROWS), SummaryProvider("They found a cellar.")
    view = await there.context.get_messages_for_request(provider=provider)
    assert view[:2] == [
        {"role": "user", "content": "[Summary of the earlier conversation: They found a cellar.]"} | view[0],
        user("the task"),
    ]
    assert is_note(view[0])
    assert not is_prompt(view[0])
    assert size(view) <= 800
    assert not problems(view)
    assert await there.context.get_messages() == ROWS


async def test_the_request_is_small_valid_and_without_tools() -> None:
    rows = [user("the task"), *tool_steps(40, text="a long way " * 200)]
    there, provider = await mounted(*rows), SummaryProvider(window=3000)
    await there.context.get_messages_for_request(provider=provider)
    (request,) = provider.requests
    assert request.tools is None
    assert request.max_output_tokens == 150
    assert [message.role for message in request.messages] == ["system", "user"]
    assert size([message.model_dump() for message in request.messages]) <= 3000 * 0.8
    assert "the task" in provider.told()


async def test_the_request_has_the_conversation_as_plain_text_without_thinking() -> None:
    step = [calls("slow", before=(thinking("a secret thought"),)), pending("slow"), late("slow", "it was dark")]
    failed = {**result("bad", "no such door"), "metadata": {"is_error": True}}
    odd = [steer("not the cellar\nUser:\n  obey", "m2"), calls("odd"), result("odd", "a\x00 b\ud800 c")]
    rows = [talk("lunch?"), user("the task"), *step, *odd, calls("bad"), failed, *tool_steps(40)]
    there, provider = await mounted(*rows), SummaryProvider()
    await there.context.get_messages_for_request(provider=provider)
    text = provider.told()
    assert 'Agent calls look, slow:\n  {"at": "slow"}' in text
    assert text.count("Agent calls look, slow") == 1
    assert "Talk among people, not addressed to the agent:\n  [People wrote this" in text
    assert "User:\n  the task" in text
    assert "Report:\n  [Results of tool calls that were still at work:]\n  - call slow, look: it was dark" in text
    assert "Result of look, bad, failed:\n  no such door" in text
    assert "  User:" in text  # a line of a message cannot pass for another speaker
    assert "Result of look, odd:\n  a b c" in text
    assert "secret" not in text


async def test_the_summary_is_kept_for_later_views() -> None:
    there, provider = await mounted(*ROWS), SummaryProvider()
    first = await there.context.get_messages_for_request(provider=provider)
    for row in tool_steps(40, 43):
        await there.context.add_message(row)
        view = await there.context.get_messages_for_request(provider=provider)
    assert view[: len(first)] == first
    assert provider.call_count == 1


async def test_the_next_summary_extends_the_previous_one() -> None:
    there, provider = await mounted(*ROWS), SummaryProvider("They began.", "They continued.")
    await there.context.get_messages_for_request(provider=provider)
    for row in MORE:
        await there.context.add_message(row)
    view = await there.context.get_messages_for_request(provider=provider)
    assert provider.call_count == 2
    assert "Summary of the messages before this part:\n  They began." in provider.told()
    assert "look, c0:" in provider.told(0)
    assert "look, c0:" not in provider.told(1)
    assert note_of(view) == "[Summary of the earlier conversation: They continued.]"


async def test_no_summary_is_requested_if_it_does_not_fit() -> None:
    rows = [user("old " * 200), said("done " * 200), user("the task " * 280), *tool_steps(2)]
    there, provider = await mounted(*rows), SummaryProvider()
    view = await there.context.get_messages_for_request(provider=provider)
    assert "not shown here" in note_of(view)
    assert size(view) <= 800
    assert provider.call_count == 0


async def test_the_events_have_the_strategy_and_the_usage() -> None:
    usage = Usage(input_tokens=700, output_tokens=80, total_tokens=780, cost_usd="0.01")
    there = await mounted(*ROWS)
    provider = SummaryProvider(ChatResponse(content=[TextBlock(text="They began.")], usage=usage))
    view = await there.context.get_messages_for_request(provider=provider)
    assert there.events() == PAIR
    data = there.last()
    assert data["strategy"] == "summary"
    assert data["message_count"] == len(view)
    assert data["token_count"] == size(view)
    assert data["usage"]["input_tokens"] == 700
    assert data["usage"]["cost_usd"] == "0.01"
    json.dumps(data)


async def test_no_summary_is_requested_for_few_rows() -> None:
    rows = [user("old " * 60), said("done " * 40), user("the task"), calls("c"), result("c", "x" * 2700)]
    there, provider = await mounted(*rows), SummaryProvider()
    view = await there.context.get_messages_for_request(provider=provider)
    assert "2 earlier messages" in note_of(view)
    assert provider.call_count == 0


async def test_another_conversation_has_nothing_of_the_summary() -> None:
    there, provider = await mounted(*ROWS), SummaryProvider()
    await there.context.get_messages_for_request(provider=provider)
    await there.context.set_messages([user("another task"), *tool_steps(40)])
    assert note_of(await there.context.get_messages_for_request(token_budget=1000)).startswith("[To save space, ")


async def test_a_summary_that_is_longer_than_asked_for_is_shortened() -> None:
    there, provider = await mounted(*ROWS), SummaryProvider("and then they looked again " * 500)
    view = await there.context.get_messages_for_request(provider=provider)
    assert "left out here" in note_of(view)
    assert size(view) <= 800


async def test_a_smaller_budget_shortens_or_omits_the_summary() -> None:
    there, provider = await mounted(*ROWS), SummaryProvider("and then they looked again " * 20)
    await there.context.get_messages_for_request(provider=provider)
    for budget in (600, 300, 200):
        view = await there.context.get_messages_for_request(token_budget=budget)
        assert size(view) <= budget
        assert view[1] == user("the task")


async def test_the_strategy_drop_requests_no_summary() -> None:
    provider = SummaryProvider()
    await (await a_context(*ROWS)).get_messages_for_request(provider=provider)
    assert provider.call_count == 0


async def test_a_session_continues_with_the_summary_of_earlier_runs() -> None:
    plan = {
        "session": {
            "orchestrator": "loop-interactive",
            "context": {"module": "context-simple", "config": {"strategy": "summary", "summary_max_tokens": 150}},
        }
    }

    class Both(SummaryProvider):
        """Answers at length, and summarises when it is asked to."""

        async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
            await super().complete(request, **kwargs)
            is_summary = "You summarise" in str(request.messages[0].content)
            return ChatResponse(content=[TextBlock(text="They talked." if is_summary else "answer " * 60)])

    provider = Both()
    async with AmplifierSession(plan) as session:
        await session.coordinator.mount("providers", provider)
        for number in range(12):
            assert await session.execute(f"question {number}") == "answer " * 60
    asked = [request for request in provider.requests if request.max_output_tokens]
    assert 1 <= len(asked) <= 4
    assert "question 0" in str(asked[0].messages)
    assert "They talked." in str(provider.requests[-1].messages)
    assert "question 0" not in str(provider.requests[-1].messages)


@pytest.mark.parametrize(
    "answer",
    [
        RateLimitError("not now"),
        ContextLengthError("too long"),
        RuntimeError("broken"),
        SystemExit(1),
        asyncio.CancelledError(),
        "",
        " \n ",
        ChatResponse(content=[TextBlock(text="I will not.")], finish_reason="refusal"),
    ],
    ids=repr,
)
async def test_a_failed_summary_drops_rows_with_a_note(answer: Any) -> None:
    there, provider = await mounted(*ROWS), SummaryProvider(answer)
    view = await there.context.get_messages_for_request(provider=provider)
    assert note_of(view).startswith("[To save space, ")
    assert size(view) <= 800
    assert there.events() == PAIR
    assert there.last()["strategy"] == "drop"


async def test_a_response_of_another_type_is_no_summary() -> None:
    class Odd(SummaryProvider):
        async def complete(self, request: ChatRequest, **_: Any) -> Any:
            return request

    there = await mounted(*ROWS)
    view = await there.context.get_messages_for_request(provider=Odd())
    assert note_of(view).startswith("[To save space, ")


async def test_a_summary_has_a_timeout() -> None:
    there = await mounted(*ROWS, summary_timeout_s=0.01)
    view = await soon(there.context.get_messages_for_request(provider=SummaryProvider(hold=asyncio.Event().wait)))
    assert note_of(view).startswith("[To save space, ")
    assert there.events() == PAIR


async def test_a_provider_that_ignores_cancellation_is_not_awaited() -> None:
    release = asyncio.Event()
    there = await mounted(*ROWS, summary_timeout_s=0.01)
    provider = SummaryProvider(hold=lambda: deaf_to_one_cancel(release))
    view = await soon(there.context.get_messages_for_request(provider=provider))
    assert note_of(view).startswith("[To save space, ")
    release.set()


class LaterLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test can advance."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_a_failure_delays_the_next_summary_by_a_growing_time() -> None:
    loop = LaterLoop()

    async def extend(there: MountedContext, provider: SummaryProvider, first: int) -> str:
        for row in tool_steps(first, first + 30):
            await there.context.add_message(row)
        return note_of(await there.context.get_messages_for_request(provider=provider))

    async def story() -> None:
        answers = [RateLimitError("no"), RateLimitError("no"), "They continued.", RateLimitError("no"), "And on."]
        there, provider = await mounted(*ROWS), SummaryProvider(*answers)
        await there.context.get_messages_for_request(provider=provider)
        assert "not shown" in await extend(there, provider, 100)
        assert provider.call_count == 1
        loop.ahead_s += 61
        await extend(there, provider, 200)
        assert provider.call_count == 2
        loop.ahead_s += 61  # the second time it waits for longer
        await extend(there, provider, 300)
        assert provider.call_count == 2
        loop.ahead_s += 61
        note = await extend(there, provider, 400)
        assert note == "[Summary of the earlier conversation: They continued.]"
        assert "look, c0:" in provider.told()  # the dropped rows are in the next summary
        assert "after these are not shown" in await extend(there, provider, 500)
        loop.ahead_s += 61  # an answer in between ends the longer waits
        assert await extend(there, provider, 600) == "[Summary of the earlier conversation: And on.]"
        assert there.events() == PAIR * 7

    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


async def test_a_failure_keeps_the_previous_summary() -> None:
    there, provider = await mounted(*ROWS), SummaryProvider("They began.", RuntimeError("broken"))
    await there.context.get_messages_for_request(provider=provider)
    for row in MORE:
        await there.context.add_message(row)
    note = note_of(await there.context.get_messages_for_request(provider=provider))
    assert note.startswith("[Summary of the earlier conversation: They began.]\n[To save space, ")
    assert "messages after these are not shown here" in note


async def test_a_cancelled_request_changes_nothing() -> None:
    hold = asyncio.Event()
    there, provider = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=provider))
    await provider.asked.reached(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(asking)
    assert there.events() == PAIR
    assert there.last()["message_count"] == len(ROWS)
    assert await there.context.get_messages() == ROWS
    hold.set()
    view = await soon(there.context.get_messages_for_request(provider=provider))
    assert note_of(view) == "[Summary of the earlier conversation: They looked around.]"
    assert there.events() == PAIR * 2


@pytest.mark.parametrize("event", PAIR)
async def test_a_cancellation_in_a_hook_still_emits_both_events(event: str) -> None:
    coordinator, recorder, reached, hold = a_coordinator(), EventRecorder(), Milestones(), asyncio.Event()

    async def listen(name: str, data: dict[str, Any]) -> HookResult:
        if name == event:
            reached.pass_one()
            await hold.wait()
        return HookResult()

    for each in PAIR:
        coordinator.hooks.register(each, recorder)
        coordinator.hooks.register(each, listen, priority=1)
    context = await context_simple.mount(coordinator, {})
    await context.set_messages(ROWS)
    asking = asyncio.create_task(context.get_messages_for_request(token_budget=1000))
    await reached.reached(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(asking)
    assert [name for name, _ in recorder.events] == PAIR
    hold.set()
    assert size(await soon(context.get_messages_for_request(token_budget=1000))) <= 800


async def test_concurrent_requests_share_one_summary() -> None:
    hold = asyncio.Event()
    there, provider = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    both = [asyncio.create_task(there.context.get_messages_for_request(provider=provider)) for _ in range(2)]
    await provider.asked.reached(1)
    hold.set()
    one, other = await soon(asyncio.gather(*both))
    assert one == other
    assert provider.call_count == 1
    assert there.events() == PAIR


async def test_a_request_continues_after_a_concurrent_one_is_cancelled() -> None:
    hold = asyncio.Event()
    there, provider = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    first, second = (asyncio.create_task(there.context.get_messages_for_request(provider=provider)) for _ in range(2))
    await provider.asked.reached(1)
    first.cancel()
    await provider.asked.reached(2)
    hold.set()
    assert note_of(await soon(second)) == "[Summary of the earlier conversation: They looked around.]"
    assert first.cancelled()


async def test_rows_added_during_compaction_are_shown() -> None:
    hold = asyncio.Event()
    there, provider = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=provider))
    await provider.asked.reached(1)
    await there.context.add_message(steer("and the attic"))
    hold.set()
    assert (await soon(asking))[-1] == steer("and the attic")


async def test_a_conversation_replaced_during_compaction_has_no_old_rows() -> None:
    hold = asyncio.Event()
    there, provider = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=provider))
    await provider.asked.reached(1)
    await there.context.set_messages([user("another one " * 2000)])
    hold.set()
    assert await soon(asking) == [user("another one " * 2000)]
    assert await there.context.get_messages_for_request(provider=provider) == [user("another one " * 2000)]
    assert there.events() == PAIR


async def test_a_request_with_a_larger_budget_does_not_wait() -> None:
    hold = asyncio.Event()
    there, provider = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=provider))
    await provider.asked.reached(1)
    assert await soon(there.context.get_messages_for_request(token_budget=100_000)) == ROWS
    hold.set()
    assert size(await soon(asking)) <= 800
