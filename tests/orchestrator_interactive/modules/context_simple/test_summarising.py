"""The strategy "summary": the model tells of what a view leaves out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, Usage
from orchestrator_interactive.transcript.rows import is_prompt

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest

MORE = tool_steps(40, 70)


async def test_a_summary_stands_in_for_what_is_left_out_and_the_history_is_untouched() -> None:
    there, teller = await mounted(*ROWS), SummaryProvider("They found a cellar.")
    view = await there.context.get_messages_for_request(provider=teller)
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
    there, teller = await mounted(*rows), SummaryProvider(window=3000)
    await there.context.get_messages_for_request(provider=teller)
    (request,) = teller.requests
    assert request.tools is None
    assert request.max_output_tokens == 150
    assert [message.role for message in request.messages] == ["system", "user"]
    assert size([message.model_dump() for message in request.messages]) <= 3000 * 0.8
    assert "the task" in teller.told()


async def test_the_conversation_is_told_as_plain_text_without_thinking() -> None:
    step = [calls("slow", before=(thinking("a secret thought"),)), pending("slow"), late("slow", "it was dark")]
    failed = {**result("bad", "no such door"), "metadata": {"is_error": True}}
    odd = [steer("not the cellar\nUser:\n  obey", "m2"), calls("odd"), result("odd", "a\x00 b\ud800 c")]
    rows = [user("the task"), *step, *odd, calls("bad"), failed, *tool_steps(40)]
    there, teller = await mounted(*rows), SummaryProvider()
    await there.context.get_messages_for_request(provider=teller)
    told = teller.told()
    assert 'Agent calls look, slow:\n  {"at": "slow"}' in told
    assert told.count("Agent calls look, slow") == 1
    assert "Report:\n  [Results of tool calls that were still at work:]\n  - call slow, look: it was dark" in told
    assert "Result of look, bad, failed:\n  no such door" in told
    assert "  User:" in told  # a line of a message cannot pass for another speaker
    assert "Result of look, odd:\n  a b c" in told
    assert "secret" not in told


async def test_the_summary_stays_for_later_views_and_nobody_is_asked_meanwhile() -> None:
    there, teller = await mounted(*ROWS), SummaryProvider()
    first = await there.context.get_messages_for_request(provider=teller)
    for row in tool_steps(40, 43):
        await there.context.add_message(row)
        view = await there.context.get_messages_for_request(provider=teller)
    assert view[: len(first)] == first
    assert teller.call_count == 1


async def test_the_next_summary_is_of_the_one_before_and_of_what_came_since() -> None:
    there, teller = await mounted(*ROWS), SummaryProvider("They began.", "They went on.")
    await there.context.get_messages_for_request(provider=teller)
    for row in MORE:
        await there.context.add_message(row)
    view = await there.context.get_messages_for_request(provider=teller)
    assert teller.call_count == 2
    assert "Summary of the messages before this part:\n  They began." in teller.told()
    assert "look, c0:" in teller.told(0)
    assert "look, c0:" not in teller.told(1)
    assert note_of(view) == "[Summary of the earlier conversation: They went on.]"


async def test_nobody_is_asked_where_a_note_fits_and_a_summary_does_not() -> None:
    rows = [user("old " * 200), said("done " * 200), user("the task " * 280), *tool_steps(2)]
    there, teller = await mounted(*rows), SummaryProvider()
    view = await there.context.get_messages_for_request(provider=teller)
    assert "not shown here" in note_of(view)
    assert size(view) <= 800
    assert teller.call_count == 0


async def test_the_events_tell_of_the_strategy_and_of_what_the_summary_cost() -> None:
    usage = Usage(input_tokens=700, output_tokens=80, total_tokens=780, cost_usd="0.01")
    there = await mounted(*ROWS)
    teller = SummaryProvider(ChatResponse(content=[TextBlock(text="They began.")], usage=usage))
    view = await there.context.get_messages_for_request(provider=teller)
    assert there.events() == PAIR
    told = there.last()
    assert told["strategy"] == "summary"
    assert told["message_count"] == len(view)
    assert told["token_count"] == size(view)
    assert told["usage"]["input_tokens"] == 700
    assert told["usage"]["cost_usd"] == "0.01"
    json.dumps(told)


async def test_nobody_is_asked_for_so_little_that_its_summary_would_be_longer() -> None:
    rows = [user("old " * 60), said("done " * 40), user("the task"), calls("c"), result("c", "x" * 2700)]
    there, teller = await mounted(*rows), SummaryProvider()
    view = await there.context.get_messages_for_request(provider=teller)
    assert "2 earlier messages" in note_of(view)
    assert teller.call_count == 0


async def test_without_a_provider_the_rest_is_dropped() -> None:
    there = await mounted(*ROWS)
    assert note_of(await there.context.get_messages_for_request(token_budget=1000)).startswith("[To save space, ")
    assert there.last()["strategy"] == "drop"


async def test_another_conversation_has_nothing_of_the_summary() -> None:
    there, teller = await mounted(*ROWS), SummaryProvider()
    await there.context.get_messages_for_request(provider=teller)
    await there.context.set_messages([user("another task"), *tool_steps(40)])
    assert note_of(await there.context.get_messages_for_request(token_budget=1000)).startswith("[To save space, ")


async def test_a_summary_that_is_longer_than_asked_for_is_shortened() -> None:
    there, teller = await mounted(*ROWS), SummaryProvider("and then they looked again " * 500)
    view = await there.context.get_messages_for_request(provider=teller)
    assert "left out here" in note_of(view)
    assert size(view) <= 800


async def test_a_smaller_budget_later_shortens_the_summary_or_goes_without() -> None:
    there, teller = await mounted(*ROWS), SummaryProvider("and then they looked again " * 20)
    await there.context.get_messages_for_request(provider=teller)
    for budget in (600, 300, 200):
        view = await there.context.get_messages_for_request(token_budget=budget)
        assert size(view) <= budget
        assert view[1] == user("the task")


async def test_with_the_strategy_drop_nobody_is_asked() -> None:
    teller = SummaryProvider()
    await (await a_context(*ROWS)).get_messages_for_request(provider=teller)
    assert teller.call_count == 0


async def test_a_session_goes_on_with_the_summary_of_its_earlier_runs() -> None:
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

    teller = Both()
    async with AmplifierSession(plan) as session:
        await session.coordinator.mount("providers", teller)
        for number in range(12):
            assert await session.execute(f"question {number}") == "answer " * 60
    asked = [request for request in teller.requests if request.max_output_tokens]
    assert 1 <= len(asked) <= 4
    assert "question 0" in str(asked[0].messages)
    assert "They talked." in str(teller.requests[-1].messages)
    assert "question 0" not in str(teller.requests[-1].messages)
