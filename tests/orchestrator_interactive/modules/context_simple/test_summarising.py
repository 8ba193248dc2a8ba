"""The strategy "summary": the model summarises the rows that a view omits."""

import json
from typing import Any

from context_rows import (
    a_context,
    calls,
    is_note,
    late,
    pending,
    problems,
    result,
    said,
    size,
    steer,
    thinking,
    tool_steps,
    user,
)
from context_summaries import PAIR, ROWS, SummaryProvider, mounted, note_of

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, TextBlock, Usage
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
    rows = [user("the task"), *step, *odd, calls("bad"), failed, *tool_steps(40)]
    there, provider = await mounted(*rows), SummaryProvider()
    await there.context.get_messages_for_request(provider=provider)
    text = provider.told()
    assert 'Agent calls look, slow:\n  {"at": "slow"}' in text
    assert text.count("Agent calls look, slow") == 1
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
