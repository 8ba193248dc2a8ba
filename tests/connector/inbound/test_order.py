"""Events of one conversation that arrive over two connections, the older one last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

import pytest
from chat import ALPHA, ENVELOPE, ONE_PENDING

from connector import Participation
from local_slack import HeldUntil

T = TypeVar("T")


@pytest.fixture
async def idle(chat):
    """A thread whose run has ended."""
    chat.sessions.obedient = True
    thread = await chat.start_shown()
    await thread.run.answer("ok")
    await thread.shows("ok")
    return thread


async def late(thread, action: Awaitable[T]) -> tuple[T, asyncio.Event]:
    """Do something whose event stays on its way, over one of two connections, until the event is set."""
    await thread.chat.acknowledged()
    assert thread.chat.slack.socket_mode.connections == 2
    thread.chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    return await action, arrives


async def arrived(thread, arrives: asyncio.Event) -> None:
    arrives.set()
    await thread.chat.acknowledged()


async def test_an_edit_of_a_message_that_is_still_on_its_way_is_read_once(chat):
    thread = await chat.start_shown()
    reply, arrives = await late(thread, thread.say("and thsi"))
    await thread.edit(reply, "and this")
    await thread.run.injected("and this")
    await arrived(thread, arrives)
    await thread.inject("the next one")
    assert thread.run.texts == ["and this", "the next one"]


async def test_of_two_edits_the_latest_wins_whichever_arrives_first(chat):
    thread = await chat.start_shown()
    reply = await thread.inject("one")
    _, arrives = await late(thread, thread.edit(reply, "two"))
    await thread.edit(reply, "three")
    await thread.run.injected("three")
    await arrived(thread, arrives)
    await thread.inject("the next one")
    assert thread.run.texts == ["three", "the next one"]


async def test_a_message_whose_deletion_arrives_first_is_not_read(chat):
    thread = await chat.start_shown()
    reply, arrives = await late(thread, thread.say("and this"))
    await thread.delete(reply)
    await thread.chat.slack.until(lambda _: chat.slack.socket_mode.delivery.outstanding == 1)
    await arrived(thread, arrives)
    await thread.inject("the next one")
    assert thread.run.texts == ["the next one"]


async def test_a_message_whose_deletion_arrives_first_starts_no_run(chat, idle):
    reply, arrives = await late(idle, idle.say("and this"))
    await idle.delete(reply)
    await chat.slack.until(lambda _: chat.slack.socket_mode.delivery.outstanding == 1)
    await arrived(idle, arrives)
    await chat.starts_next()


@pytest.mark.parametrize("where", ["status", "first message"])
async def test_a_cross_that_is_older_than_the_run_does_not_stop_it(chat, where):
    thread = await chat.start_shown()
    status = (await thread.status()).ts
    _, arrives = await late(thread, thread.cross(status if where == "status" else ""))
    await thread.run.answer("ok")
    await thread.shows("ok")
    await thread.say("and again")
    run = await thread.next_run()
    await arrived(thread, arrives)
    await thread.inject("the next one")
    assert run.stops == []


async def test_a_cross_on_a_message_that_is_still_on_its_way_keeps_it_from_starting_a_run(chat, idle):
    reply, arrives = await late(idle, idle.say("and this"))
    await idle.cross(reply, who="ben")
    await idle.contains("🛑 Stopped by Ben.")
    await arrived(idle, arrives)
    await chat.starts_next()


async def test_a_message_that_a_stop_has_overtaken_starts_no_run_and_leads_the_next_one(chat, idle):
    reply, arrives = await late(idle, idle.say("delete the old files"))
    await idle.say("stop")
    await idle.contains("Nothing is running here.")
    await arrived(idle, arrives)
    await idle.contains(ONE_PENDING)
    await idle.marked(reply, ENVELOPE)
    await chat.starts_next()
    await idle.say("list them")
    run = await idle.next_run()
    await run.injected("list them")
    assert run.prompt == "delete the old files"


async def test_a_message_that_the_stop_of_a_run_has_overtaken_starts_no_run(chat):
    thread = await chat.start_shown()
    _, arrives = await late(thread, thread.say("delete the old files"))
    await thread.stop()
    await arrived(thread, arrives)
    await thread.run.answer("", status="cancelled")
    await thread.contains("🛑 Stopped by Ana.")
    await thread.contains("has not been read yet")
    await chat.starts_next()


async def test_a_message_that_is_newer_than_the_stop_starts_a_run(chat, idle):
    _, arrives = await late(idle, idle.say("stop"))
    await idle.say("and this")
    run = await idle.next_run()
    await arrived(idle, arrives)
    await idle.inject("the next one")
    assert (run.prompt, run.stops) == ("and this", [])


@pytest.fixture
async def watched(process):
    """A thread of a watched channel, whose first message stays on its way until the event is set."""
    async with process(replace(ALPHA, participation=Participation(answers="every"))) as chat:
        chat.sessions.obedient = True
        await chat.acknowledged()
        chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
        yield await chat.say("look at the alrets"), arrives


async def only_the_first_is_on_its_way(thread):
    await thread.chat.slack.until(lambda _: thread.chat.slack.socket_mode.delivery.outstanding == 1)


async def test_a_reply_that_overtakes_the_first_message_of_a_watched_channel_is_read(watched):
    thread, arrives = watched
    await thread.say("only those of today")
    await only_the_first_is_on_its_way(thread)
    await arrived(thread, arrives)
    run = await thread.next_run()
    assert run.prompt == "look at the alrets"
    await run.injected("only those of today")


async def test_a_stop_that_overtakes_the_first_message_of_a_watched_channel_stops_its_run(watched):
    thread, arrives = watched
    await thread.say("stop")
    await only_the_first_is_on_its_way(thread)
    await arrived(thread, arrives)
    await thread.contains("🛑 Stopped by Ana.")


async def test_an_edit_that_overtakes_the_first_message_of_a_watched_channel_is_read_once(watched):
    thread, arrives = watched
    await thread.edit(thread.ts, "look at the alerts")
    assert (await thread.next_run()).prompt == "look at the alerts"
    await arrived(thread, arrives)
    await thread.inject("the next one")
    assert thread.run.texts == ["the next one"]
