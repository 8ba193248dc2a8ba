"""What happens to a context while it makes a smaller view: a stop, another request, new rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import Milestones, soon
from context_rows import (
    a_coordinator,
    size,
    steer,
    tool_steps,
    user,
)
from context_summaries import PAIR, ROWS, SummaryProvider, mounted, note_of

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.testing import EventRecorder

if TYPE_CHECKING:
    pass


async def test_a_request_that_is_cancelled_leaves_everything_as_it_was() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
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
    there, teller = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    both = [asyncio.create_task(there.context.get_messages_for_request(provider=teller)) for _ in range(2)]
    await teller.asked.reached(1)
    hold.set()
    one, other = await soon(asyncio.gather(*both))
    assert one == other
    assert teller.call_count == 1
    assert there.events() == PAIR


async def test_the_second_of_two_requests_goes_on_where_the_first_is_cancelled() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    first, second = (asyncio.create_task(there.context.get_messages_for_request(provider=teller)) for _ in range(2))
    await teller.asked.reached(1)
    first.cancel()
    await teller.asked.reached(2)
    hold.set()
    assert note_of(await soon(second)) == "[Summary of the earlier conversation: They looked around.]"
    assert first.cancelled()


async def test_rows_that_come_meanwhile_are_shown() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=teller))
    await teller.asked.reached(1)
    await there.context.add_message(steer("and the attic"))
    hold.set()
    assert (await soon(asking))[-1] == steer("and the attic")


async def test_a_view_that_fits_by_now_is_not_made_smaller_once_more() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
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
    there, teller = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
    asking = asyncio.create_task(there.context.get_messages_for_request(provider=teller))
    await teller.asked.reached(1)
    await there.context.set_messages([user("another one " * 2000)])
    hold.set()
    assert await soon(asking) == [user("another one " * 2000)]
    assert await there.context.get_messages_for_request(provider=teller) == [user("another one " * 2000)]
    assert there.events() == PAIR


async def test_a_request_with_more_room_is_not_held_up_and_both_get_what_fits_them() -> None:
    hold = asyncio.Event()
    there, teller = await mounted(*ROWS), SummaryProvider(hold=hold.wait)
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
