"""A stop that arrives while a run starts or ends, or while Slack is slow."""

from __future__ import annotations

import asyncio

import pytest
from chat import HOURGLASS, Thread

from local_slack import DropAfterCall

NOTHING_RUNS = "Nothing is running here."


@pytest.fixture
async def answered(chat) -> Thread:
    """A thread whose run has ended; the bot knows Ana's name."""
    thread = await chat.start("@alpha first")
    await thread.run.answer("first answer")
    await thread.shows("first answer")
    return thread


async def stop_by(how: str, thread, who: str = "ana") -> None:
    await (thread.cross(who=who) if how == "cross" else thread.say("stop", who))


async def is_stopped(thread) -> None:
    async with asyncio.timeout(3):
        await thread.run.stopped()


@pytest.mark.parametrize("how", ["cross", "word"])
async def test_a_stop_right_after_the_mention_waits_for_no_name_and_is_not_lost(chat, how):
    chat.sessions.obedient = True
    lookup = chat.hold("users.info")
    thread = await chat.say("@alpha look")
    await stop_by(how, thread)
    await chat.acknowledged()
    lookup.set()
    await thread.contains("🛑 Stopped by Ana.", 3)
    assert NOTHING_RUNS not in thread.texts


async def test_a_cross_stops_a_run_whose_status_slack_has_not_accepted(chat, answered):
    chat.hold("chat.postMessage")
    thread = await chat.start()
    await thread.cross()
    await is_stopped(thread)


async def test_a_cross_on_a_status_does_not_wait_for_the_status_of_another_thread(chat, answered):
    chat.hold("chat.postMessage")
    await chat.start("@alpha one")
    thread = await chat.start("@alpha two")
    await thread.cross((await thread.status()).ts)
    await is_stopped(thread)


@pytest.mark.parametrize("how", ["cross", "word"])
async def test_a_stop_does_not_wait_for_the_name_of_its_author(chat, how):
    thread = await chat.start()
    chat.hold("users.info")
    await stop_by(how, thread, "ben")
    await is_stopped(thread)


@pytest.mark.parametrize("how", ["cross", "word"])
async def test_a_stop_of_a_run_that_has_ended_does_not_stop_the_next_one(chat, how):
    thread = await chat.start()
    await thread.status()
    lookup = chat.hold("users.info")
    await stop_by(how, thread, "ben")
    await chat.acknowledged()
    await thread.run.answer("first answer")
    await thread.shows("first answer")
    await thread.say("and now this")
    run = await thread.next_run()
    lookup.set()
    await thread.accept("a steer", who="ben")
    assert run.stops == []


async def test_a_cross_on_a_status_whose_post_is_in_doubt_stops_the_run(chat, answered):
    chat.fail("chat.postMessage", DropAfterCall())
    thread = await chat.start()
    await thread.cross((await thread.status()).ts)
    await is_stopped(thread)
    await thread.run.answer("", status="cancelled")
    await thread.shows("🛑 Stopped by Ana.")


async def test_a_stop_during_set_up_ends_the_run_and_keeps_the_pending_message(chat):
    chat.sessions.obedient, chat.sessions.hold_setup = True, asyncio.Event()
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS)
    await thread.accept("and this")
    await thread.say("stop")
    await chat.acknowledged()
    chat.sessions.hold_setup.set()
    await thread.contains("🛑 Stopped by Ana. 1 message has not been read yet")
