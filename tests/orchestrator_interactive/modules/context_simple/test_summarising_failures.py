"""The strategy "summary" where no summary comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import deaf_to_one_cancel, soon
from context_rows import (
    size,
    tool_steps,
)
from context_summaries import PAIR, ROWS, MountedContext, SummaryProvider, mounted, note_of

from orchestrator_interactive.kernel.contracts.errors import ContextLengthError, RateLimitError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest

MORE = tool_steps(40, 70)


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
    there, teller = await mounted(*ROWS), SummaryProvider(answer)
    view = await there.context.get_messages_for_request(provider=teller)
    assert note_of(view).startswith("[To save space, ")
    assert size(view) <= 800
    assert there.events() == PAIR
    assert there.last()["strategy"] == "drop"


async def test_what_is_no_answer_is_no_summary() -> None:
    class Odd(SummaryProvider):
        async def complete(self, request: ChatRequest, **_: Any) -> Any:
            return request

    there = await mounted(*ROWS)
    view = await there.context.get_messages_for_request(provider=Odd())
    assert note_of(view).startswith("[To save space, ")


async def test_a_provider_that_is_silent_for_too_long_is_not_waited_for() -> None:
    there = await mounted(*ROWS, summary_timeout_s=0.01)
    view = await soon(there.context.get_messages_for_request(provider=SummaryProvider(hold=asyncio.Event().wait)))
    assert note_of(view).startswith("[To save space, ")
    assert there.events() == PAIR


async def test_a_provider_that_does_not_heed_its_cancellation_is_left_behind() -> None:
    release = asyncio.Event()
    there = await mounted(*ROWS, summary_timeout_s=0.01)
    teller = SummaryProvider(hold=lambda: deaf_to_one_cancel(release))
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

    async def go_on(there: MountedContext, teller: SummaryProvider, first: int) -> str:
        for row in tool_steps(first, first + 30):
            await there.context.add_message(row)
        return note_of(await there.context.get_messages_for_request(provider=teller))

    async def story() -> None:
        answers = [RateLimitError("no"), RateLimitError("no"), "They went on.", RateLimitError("no"), "And on."]
        there, teller = await mounted(*ROWS), SummaryProvider(*answers)
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
    there, teller = await mounted(*ROWS), SummaryProvider("They began.", RuntimeError("broken"))
    await there.context.get_messages_for_request(provider=teller)
    for row in MORE:
        await there.context.add_message(row)
    note = note_of(await there.context.get_messages_for_request(provider=teller))
    assert note.startswith("[Summary of the earlier conversation: They began.]\n[To save space, ")
    assert "messages after these are not shown here" in note
