"""The strategy "summary": the model tells of what a view leaves out."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

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
    thinking,
    tool_steps,
    user,
)

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ProviderInfo, events
from orchestrator_interactive.kernel.errors import ContextLengthError, RateLimitError
from orchestrator_interactive.kernel.messages import ChatResponse, TextBlock, Usage
from orchestrator_interactive.kernel.request_check import check
from orchestrator_interactive.kernel.testing import EventRecorder, MockProvider
from orchestrator_interactive.modules import context_simple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.messages import ChatRequest

Row = dict[str, Any]

PAIR = [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
ROWS = [user("the task"), *tool_steps(40)]
MORE = tool_steps(40, 70)


class Teller(MockProvider):
    """A provider that refuses what a real one would, and may be held before it answers."""

    def __init__(self, *answers: Any, hold: Callable[[], Awaitable[object]] | None = None, window: int = 1000) -> None:
        super().__init__(list(answers), default="They looked around.")
        self.asked = Milestones()
        self._hold = hold
        self._window = window

    def get_info(self) -> ProviderInfo:
        defaults = {"context_window": self._window + 1500, "max_output_tokens": 500}
        return ProviderInfo(id="teller", display_name="Teller", capabilities=["tool_choice"], defaults=defaults)

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        check(request)
        self.asked.pass_one()
        if self._hold is not None:
            await self._hold()
        return await super().complete(request, **kwargs)

    def told(self, number: int = -1) -> str:
        """What it was to summarise."""
        content = self.requests[number].messages[-1].content
        assert isinstance(content, str)
        return content


class Mounted:
    """A context in a session that keeps the events of compaction."""

    def __init__(self, context: context_simple.SimpleContext, recorder: EventRecorder) -> None:
        self.context, self._recorder = context, recorder

    def events(self) -> list[str]:
        return [event for event, _ in self._recorder.events]

    def last(self) -> dict[str, Any]:
        return self._recorder.events[-1][1]


async def mounted(*rows: Row, **config: Any) -> Mounted:
    coordinator, recorder = a_coordinator(), EventRecorder()
    for event in PAIR:
        coordinator.hooks.register(event, recorder)
    context = await context_simple.mount(coordinator, {"strategy": "summary", "summary_max_tokens": 150, **config})
    await context.set_messages(rows)
    return Mounted(context, recorder)


def note_of(view: list[Row]) -> str:
    (note,) = [row for row in view if is_note(row)]
    text: str = note["content"]
    return text


async def test_a_summary_stands_in_for_what_is_left_out_and_the_history_is_untouched() -> None:
    there, teller = await mounted(*ROWS), Teller("They found a cellar.")
    view = await there.context.get_messages_for_request(provider=teller)
    assert view[:2] == [
        {"role": "user", "content": "[Summary of the earlier conversation: They found a cellar.]"} | view[0],
        user("the task"),
    ]
    assert is_note(view[0])
    assert not context_simple.begins_a_task(view[0])
    assert size(view) <= 800
    assert not problems(view)
    assert await there.context.get_messages() == ROWS


async def test_the_request_is_small_valid_and_without_tools() -> None:
    rows = [user("the task"), *tool_steps(40, text="a long way " * 200)]
    there, teller = await mounted(*rows), Teller(window=3000)
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
    there, teller = await mounted(*rows), Teller()
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
    there, teller = await mounted(*ROWS), Teller()
    first = await there.context.get_messages_for_request(provider=teller)
    for row in tool_steps(40, 43):
        await there.context.add_message(row)
        view = await there.context.get_messages_for_request(provider=teller)
    assert view[: len(first)] == first
    assert teller.call_count == 1


async def test_the_next_summary_is_of_the_one_before_and_of_what_came_since() -> None:
    there, teller = await mounted(*ROWS), Teller("They began.", "They went on.")
    await there.context.get_messages_for_request(provider=teller)
    for row in MORE:
        await there.context.add_message(row)
    view = await there.context.get_messages_for_request(provider=teller)
    assert teller.call_count == 2
    assert "Summary of what came before this part:\nThey began." in teller.told()
    assert "look, c0:" in teller.told(0)
    assert "look, c0:" not in teller.told(1)
    assert note_of(view) == "[Summary of the earlier conversation: They went on.]"


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
async def test_without_a_summary_the_rest_is_dropped_with_a_note(answer: Any) -> None:
    there, teller = await mounted(*ROWS), Teller(answer)
    view = await there.context.get_messages_for_request(provider=teller)
    assert note_of(view).startswith("[To save space, ")
    assert size(view) <= 800
    assert there.events() == PAIR
    assert there.last()["strategy"] == "drop"


async def test_what_is_no_answer_is_no_summary() -> None:
    class Odd(Teller):
        async def complete(self, request: ChatRequest, **_: Any) -> Any:
            return request

    there = await mounted(*ROWS)
    view = await there.context.get_messages_for_request(provider=Odd())
    assert note_of(view).startswith("[To save space, ")


async def test_a_provider_that_is_silent_for_too_long_is_not_waited_for() -> None:
    there = await mounted(*ROWS, summary_timeout_s=0.01)
    view = await soon(there.context.get_messages_for_request(provider=Teller(hold=asyncio.Event().wait)))
    assert note_of(view).startswith("[To save space, ")
    assert there.events() == PAIR


async def test_a_provider_that_does_not_heed_its_cancellation_is_left_behind() -> None:
    release = asyncio.Event()
    there = await mounted(*ROWS, summary_timeout_s=0.01)
    teller = Teller(hold=lambda: deaf_to_one_cancel(release))
    view = await soon(there.context.get_messages_for_request(provider=teller))
    assert note_of(view).startswith("[To save space, ")
    release.set()


class LaterLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_after_a_failure_nobody_is_asked_until_some_time_has_passed() -> None:
    loop = LaterLoop()

    async def go_on(there: Mounted, teller: Teller, first: int) -> str:
        for row in tool_steps(first, first + 30):
            await there.context.add_message(row)
        return note_of(await there.context.get_messages_for_request(provider=teller))

    async def story() -> None:
        answers = [RateLimitError("no"), RateLimitError("no"), "They went on.", RateLimitError("no"), "And on."]
        there, teller = await mounted(*ROWS), Teller(*answers)
        await there.context.get_messages_for_request(provider=teller)
        assert "not shown" in await go_on(there, teller, 100)
        assert teller.call_count == 1
        loop.ahead_s += 61
        await go_on(there, teller, 200)
        assert teller.call_count == 2
        loop.ahead_s += 61  # the second time it waits for longer
        await go_on(there, teller, 300)
        assert teller.call_count == 2
        loop.ahead_s += 61
        note = await go_on(there, teller, 400)
        assert note == "[Summary of the earlier conversation: They went on.]"
        assert "look, c0:" in teller.told()  # what was dropped meanwhile is told of after all
        assert "after these are not shown" in await go_on(there, teller, 500)
        loop.ahead_s += 61  # an answer in between ends the longer waits
        assert await go_on(there, teller, 600) == "[Summary of the earlier conversation: And on.]"
        assert there.events() == PAIR * 7

    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


async def test_a_failure_keeps_the_summary_that_there_is() -> None:
    there, teller = await mounted(*ROWS), Teller("They began.", RuntimeError("broken"))
    await there.context.get_messages_for_request(provider=teller)
    for row in MORE:
        await there.context.add_message(row)
    note = note_of(await there.context.get_messages_for_request(provider=teller))
    assert note.startswith("[Summary of the earlier conversation: They began.]\n[To save space, ")
    assert "messages after these are not shown here" in note


async def test_a_request_that_is_cancelled_leaves_everything_as_it_was() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), Teller(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=teller))
    await teller.asked.reached(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(asking)
    assert there.events() == PAIR
    assert there.last()["message_count"] == len(ROWS)
    assert await there.context.get_messages() == ROWS
    hold.set()
    view = await soon(there.context.get_messages_for_request(provider=teller))
    assert note_of(view) == "[Summary of the earlier conversation: They looked around.]"
    assert there.events() == PAIR * 2


@pytest.mark.parametrize("event", PAIR)
async def test_a_cancellation_in_a_hook_leaves_no_event_without_its_other(event: str) -> None:
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


async def test_two_requests_at_once_ask_once_and_show_the_same() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), Teller(hold=hold.wait)
    both = [asyncio.create_task(there.context.get_messages_for_request(provider=teller)) for _ in range(2)]
    await teller.asked.reached(1)
    hold.set()
    one, other = await soon(asyncio.gather(*both))
    assert one == other
    assert teller.call_count == 1
    assert there.events() == PAIR


async def test_the_second_of_two_requests_goes_on_where_the_first_is_cancelled() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), Teller(hold=hold.wait)
    first, second = (asyncio.create_task(there.context.get_messages_for_request(provider=teller)) for _ in range(2))
    await teller.asked.reached(1)
    first.cancel()
    await teller.asked.reached(2)
    hold.set()
    assert note_of(await soon(second)) == "[Summary of the earlier conversation: They looked around.]"
    assert first.cancelled()


async def test_rows_that_come_meanwhile_are_shown() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), Teller(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=teller))
    await teller.asked.reached(1)
    await there.context.add_message(steer("and the attic"))
    hold.set()
    assert (await soon(asking))[-1] == steer("and the attic")


async def test_a_view_that_fits_by_now_is_not_made_smaller_once_more() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), Teller(hold=hold.wait)
    both = [asyncio.create_task(there.context.get_messages_for_request(provider=teller)) for _ in range(2)]
    await teller.asked.reached(1)
    for row in tool_steps(40, 43):
        await there.context.add_message(row)
    hold.set()
    one, other = await soon(asyncio.gather(*both))
    assert one == other
    assert there.events() == PAIR


async def test_a_conversation_that_is_replaced_meanwhile_has_nothing_of_the_old_one() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), Teller(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=teller))
    await teller.asked.reached(1)
    await there.context.set_messages([user("another one " * 2000)])
    hold.set()
    assert await soon(asking) == [user("another one " * 2000)]
    assert await there.context.get_messages_for_request(provider=teller) == [user("another one " * 2000)]
    assert there.events() == PAIR


async def test_a_request_with_more_room_is_not_held_up_and_both_get_what_fits_them() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), Teller(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=teller))
    await teller.asked.reached(1)
    assert await soon(there.context.get_messages_for_request(token_budget=100_000)) == ROWS
    hold.set()
    assert size(await soon(asking)) <= 800


async def test_a_request_gets_what_fits_it_though_another_one_with_more_room_comes_at_its_end() -> None:
    coordinator, reached, hold = a_coordinator(), Milestones(), asyncio.Event()

    async def listen(_name: str, _data: dict[str, Any]) -> HookResult:
        reached.pass_one()
        await hold.wait()
        return HookResult()

    coordinator.hooks.register(events.CONTEXT_POST_COMPACT, listen)
    context = await context_simple.mount(coordinator, {})
    await context.set_messages(ROWS)
    asking = asyncio.create_task(context.get_messages_for_request(token_budget=1000))
    await reached.reached(1)
    assert await soon(context.get_messages_for_request(token_budget=100_000)) == ROWS
    hold.set()
    assert size(await soon(asking)) <= 800


async def test_nobody_is_asked_where_a_note_fits_and_a_summary_does_not() -> None:
    rows = [user("old " * 200), said("done " * 200), user("the task " * 280), *tool_steps(2)]
    there, teller = await mounted(*rows), Teller()
    view = await there.context.get_messages_for_request(provider=teller)
    assert "not shown here" in note_of(view)
    assert size(view) <= 800
    assert teller.call_count == 0


async def test_the_events_tell_of_the_strategy_and_of_what_the_summary_cost() -> None:
    usage = Usage(input_tokens=700, output_tokens=80, total_tokens=780, cost_usd="0.01")
    there = await mounted(*ROWS)
    teller = Teller(ChatResponse(content=[TextBlock(text="They began.")], usage=usage))
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
    there, teller = await mounted(*rows), Teller()
    view = await there.context.get_messages_for_request(provider=teller)
    assert "2 earlier messages" in note_of(view)
    assert teller.call_count == 0


async def test_without_a_provider_the_rest_is_dropped() -> None:
    there = await mounted(*ROWS)
    assert note_of(await there.context.get_messages_for_request(token_budget=1000)).startswith("[To save space, ")
    assert there.last()["strategy"] == "drop"


async def test_a_summary_that_is_longer_than_asked_for_is_shortened() -> None:
    there, teller = await mounted(*ROWS), Teller("and then they looked again " * 500)
    view = await there.context.get_messages_for_request(provider=teller)
    assert "left out here" in note_of(view)
    assert size(view) <= 800


async def test_a_smaller_budget_later_shortens_the_summary_or_goes_without() -> None:
    there, teller = await mounted(*ROWS), Teller("and then they looked again " * 20)
    await there.context.get_messages_for_request(provider=teller)
    for budget in (600, 300, 200):
        view = await there.context.get_messages_for_request(token_budget=budget)
        assert size(view) <= budget
        assert view[1] == user("the task")


async def test_with_the_strategy_drop_nobody_is_asked() -> None:
    teller = Teller()
    await (await a_context(*ROWS)).get_messages_for_request(provider=teller)
    assert teller.call_count == 0


async def test_a_session_goes_on_with_the_summary_of_its_earlier_runs() -> None:
    plan = {
        "session": {
            "orchestrator": "loop-interactive",
            "context": {"module": "context-simple", "config": {"strategy": "summary", "summary_max_tokens": 150}},
        }
    }

    class Both(Teller):
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
