"""Messages that are pending at a stop start no run; they lead the next one."""

from __future__ import annotations

import asyncio

import pytest
from chat import ENVELOPE, EYES, HOURGLASS, ONE_PENDING, Thread

from connector import RunFailed


@pytest.fixture
async def thread(chat) -> Thread:
    return await chat.start_shown()


async def test_pending_messages_are_named_and_lead_the_next_run(thread):
    await thread.inject("and this")
    await thread.inject("and that")
    await thread.stop()
    await thread.run.answer("I had only begun", status="cancelled")
    pending = "2 messages have not been read yet. I will read them with your next message."
    await thread.shows("I had only begun …", f"🛑 Stopped by Ana. {pending}")
    await thread.say("continue")
    run = await thread.next_run()
    await run.injected("and that", "continue")
    assert run.prompt == "and this"


async def test_a_message_between_the_first_and_the_second_stop_starts_no_run(chat, thread):
    await thread.stop()
    await thread.accept("between")
    await thread.stop()
    await thread.run.answer("", status="cancelled")
    await thread.shows(f"🛑 Stopped by Ana. {ONE_PENDING}")
    await chat.starts_next()


async def test_a_message_for_another_instance_starts_no_run(chat, thread):
    chat.sessions.obedient = True
    await thread.accept("beta: and you do that")
    await thread.stop()
    await thread.shows(f"🛑 Stopped by Ana. {ONE_PENDING}")
    await chat.starts_next()


async def test_a_stop_while_the_answer_is_posted_names_the_message_that_it_holds_back(chat, thread):
    post = chat.hold("chat.postMessage")
    await thread.run.answer("the answer")
    await thread.accept("late")
    await thread.say("stop")
    await chat.acknowledged()
    post.set()
    await thread.contains(ONE_PENDING)
    await thread.shows("the answer", f"📨 {ONE_PENDING}")
    await chat.starts_next()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stop_that_changes_nothing_at_the_end_of_a_run_names_the_message_that_it_holds_back(thread, fails):
    thread.run.listening = False
    await thread.accept("late")
    await thread.stop()
    if fails:
        await thread.run.fail(RunFailed("The model is away."))
    else:
        await thread.run.answer("the answer")
    assert ONE_PENDING in " ".join(await thread.ended())


async def test_messages_are_kept_when_the_run_that_they_lead_is_stopped_before_it_begins(chat, thread):
    await thread.inject("so that Ana's name is known")
    await thread.run.deliver()
    thread.run.listening = False
    lookup = chat.hold("users.info")
    await thread.accept("@alpha ask @chloe")
    await thread.stopped()
    await thread.contains(ONE_PENDING)
    await thread.marked(thread.ts, HOURGLASS, gone=True)
    await thread.say("continue")
    await thread.say("stop")
    await chat.acknowledged()
    lookup.set()
    await chat.slack.until(lambda _: sum("Stopped by Ana" in text for text in thread.texts) == 2)
    await thread.ended()
    await thread.say("now")
    run = await thread.next_run()
    await run.injected("continue", "now")
    assert run.prompt == f"ask @Chloe ({chat.slack.person('chloe').id})"


async def test_messages_are_kept_when_the_run_that_they_lead_is_stopped_during_set_up(chat, thread):
    thread.run.listening = False
    pending = await thread.accept("waits")
    await thread.stopped()
    await thread.marked(thread.ts, HOURGLASS, gone=True)
    chat.sessions.obedient, chat.sessions.hold_setup = True, asyncio.Event()
    await thread.accept("continue")
    await chat.slack.until(lambda _: not chat.sessions.idle)
    await thread.cross(pending)
    await chat.acknowledged()
    chat.sessions.hold_setup.set()
    await thread.contains("🛑 Stopped by Ana. 2 messages have not been read yet")
    assert not thread.message(pending).reacted(EYES)
    await thread.marked(pending, HOURGLASS, gone=True)
    await thread.say("now")
    run = await thread.next_run()
    await run.injected("continue", "now")
    assert run.prompt == "waits"
    await thread.marked(pending, EYES)


async def test_the_message_that_starts_the_next_run_is_marked_as_accepted(chat):
    chat.sessions.hold_setup = asyncio.Event()
    chat.sessions.setup_errors = [RunFailed("The files of this conversation cannot be used.")]
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS)
    await thread.accept("and this")
    await thread.say("stop")
    await chat.acknowledged()
    chat.sessions.hold_setup.set()
    await thread.contains("⚠️")
    await thread.marked(thread.ts, HOURGLASS, gone=True)
    trigger = await thread.say("continue")
    run = await thread.next_run()
    assert (run.prompt, run.texts) == ("and this", ["continue"])
    await thread.marked(trigger, ENVELOPE)
