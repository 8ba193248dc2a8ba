"""The strategy "summary" if the summary fails."""

import asyncio
from typing import Any

import pytest
from agents import deaf_to_one_cancel, soon
from context_rows import (
    size,
    tool_steps,
)
from context_summaries import PAIR, ROWS, MountedContext, SummaryProvider, mounted, note_of

from orchestrator_interactive.kernel.contracts.errors import ContextLengthError, RateLimitError
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, TextBlock

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
