"""A context during compaction: cancellation, other requests, new rows."""

import asyncio
from typing import Any

import pytest
from agents import Milestones, soon
from context_rows import (
    a_coordinator,
    size,
    steer,
    user,
)
from context_summaries import PAIR, ROWS, SummaryProvider, mounted, note_of

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.testing import EventRecorder


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
