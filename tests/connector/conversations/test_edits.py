from __future__ import annotations

import asyncio
from dataclasses import asdict

import pytest

from connector.events import SlackMessage
from connector.protocols import InboxEntry
from connector.records import PendingMessage
from local_slack.delivery.faults import Dropped

CORRECTED = "(Correction of my earlier message. It now reads:)"
DELETED = "(I have deleted my earlier message:)"


async def next_injection_is(thread, text="the next one") -> None:
    """Check that the earlier events have injected nothing."""
    before = thread.run.texts
    await thread.chat.acknowledged()
    await thread.say(text)
    await thread.run.injected(*before, text)


async def test_an_edit_replaces_the_text_of_an_injection_that_is_not_delivered(chat):
    thread = await chat.start()
    await thread.edit(await thread.inject("and this"), "no, that")
    await thread.run.injected("no, that")


async def test_an_edit_during_set_up_replaces_the_text_of_the_message(chat):
    chat.sessions.hold_setup = asyncio.Event()
    thread = await chat.say("@alpha look")
    await thread.edit(await thread.accept("and this"), "no, that")
    await chat.acknowledged()
    chat.sessions.hold_setup.set()
    await (await thread.next_run()).injected("no, that")


async def test_an_edit_replaces_the_prompt_until_the_run_has_begun(chat):
    lookup = chat.hold("users.info")
    thread = await chat.say("@alpha ask @chloe")
    await lookup.reached.wait()
    await thread.edit(thread.ts, "@alpha ask me")
    await chat.acknowledged()
    lookup.set()
    assert (await thread.next_run()).prompt == "ask me"


async def test_an_edit_of_a_delivered_message_injects_a_correction(chat):
    thread = await chat.start()
    reply = await thread.inject("and this")
    await thread.run.deliver()
    await thread.edit(reply, "no, that")
    await thread.run.injected("and this", f"{CORRECTED} no, that")
    await thread.edit(thread.ts, "@alpha look closely")
    await thread.run.injected("and this", f"{CORRECTED} no, that", f"{CORRECTED} look closely")
    await thread.run.deliver()
    await thread.run.answer("ok")
    await thread.shows("ok")
    assert chat.sessions.idle


async def test_a_correction_between_runs_is_delivered_with_the_next_message(chat):
    thread = await chat.start()
    await thread.run.answer("ok")
    await thread.shows("ok")
    await thread.edit(thread.ts, "@alpha look closely")
    await chat.acknowledged()
    assert chat.sessions.idle
    await thread.say("continue")
    run = await thread.next_run()
    await run.injected("continue")
    assert run.prompt == f"{CORRECTED} look closely"


async def test_a_change_without_a_new_text_is_no_edit(chat):
    thread = await chat.start()
    reply = await thread.inject("and this")
    await thread.run.deliver()
    await thread.edit(reply, "and this")
    await next_injection_is(thread)


async def test_a_deleted_message_that_is_not_delivered_is_withdrawn(chat):
    thread = await chat.start()
    await thread.delete(await thread.inject("and this"))
    await thread.run.injected()
    await thread.run.answer("ok")
    await thread.shows("ok")
    assert chat.sessions.idle


async def test_a_message_that_a_stop_left_pending_can_be_withdrawn(chat):
    thread = await chat.start()
    reply = await thread.inject("and this")
    await thread.stopped()
    await thread.ended()
    await thread.delete(reply)
    await chat.acknowledged()
    await thread.say("continue")
    run = await thread.next_run()
    assert (run.prompt, run.injections) == ("continue", [])


async def test_the_deletion_of_a_delivered_message_is_injected(chat):
    thread = await chat.start()
    reply = await thread.inject("and this")
    await thread.run.deliver()
    await thread.delete(reply)
    await thread.run.injected("and this", f"{DELETED} and this")


async def test_the_deletion_of_the_message_that_started_a_run_stops_the_run(chat):
    thread = await chat.start()
    await thread.inject("a reply, so that the thread remains")
    await thread.delete(thread.ts)
    await thread.run.stopped()
    await thread.run.answer("", status="cancelled")
    await chat.slack.until(lambda _: chat.sessions.idle)


async def test_changes_of_a_message_that_is_not_for_the_agent_have_no_effect(chat):
    thread = await chat.start()
    other = await thread.say("@ben what do you think?")
    await thread.edit(other, "what do you all think?")
    await thread.delete(other)
    await next_injection_is(thread)


async def test_changes_of_a_message_older_than_the_first_mention_have_no_effect(chat):
    thread = await chat.say("the tests are flaky")
    reply = await thread.say("and teh docs are old")
    await thread.say("@alpha look at the code")
    await thread.next_run()
    await thread.edit(reply, "and the docs are old")
    await thread.edit(thread.ts, "the tests are very flaky")
    await thread.delete(reply)
    await next_injection_is(thread)


async def test_an_edit_that_addresses_another_person_withdraws_the_message(chat):
    thread = await chat.start()
    reply = await thread.inject("delete the staging db")
    await thread.edit(reply, "@ben can you delete the staging db")
    await thread.run.injected()
    await thread.delete(reply)
    await next_injection_is(thread)


async def test_an_edit_that_addresses_another_person_withdraws_a_delivered_message_as_a_deletion_does(chat):
    thread = await chat.start()
    reply = await thread.inject("and this")
    await thread.run.deliver()
    await thread.edit(reply, "@ben and this")
    await thread.run.injected("and this", f"{DELETED} and this")
    await thread.edit(thread.ts, "@ben look")
    await thread.run.stopped()


async def test_the_first_message_remains_for_the_agent_after_an_edit_removes_its_mention(chat):
    thread = await chat.start()
    await thread.edit(thread.ts, "look closely")
    await thread.run.injected(f"{CORRECTED} look closely")
    assert thread.run.stops == []


async def test_an_edit_that_arrives_before_its_message_is_the_message(chat):
    thread = await chat.start()
    chat.slack.deliveries.next(Dropped())
    await thread.edit(await thread.say("and thsi"), "and this")
    await thread.run.injected("and this")


async def test_an_edit_that_arrives_before_its_message_starts_a_run_after_the_first_message_is_deleted(chat):
    status = chat.hold("chat.postMessage")
    thread = await chat.start()
    await status.reached.wait()
    chat.slack.deliveries.next(Dropped())
    reply = await thread.say("and thsi")
    await thread.delete(thread.ts)
    await thread.run.stopped()
    await thread.edit(reply, "and this")
    await chat.acknowledged()
    status.set()
    await thread.run.answer("", status="cancelled")
    assert (await thread.next_run()).prompt == "and this"


@pytest.mark.parametrize("which", ["pending", "delivered", "first"])
async def test_an_edit_to_a_stop_word_stops_the_run_once(chat, which):
    thread = await chat.start()
    message = thread.ts if which == "first" else await thread.inject("stp")
    if which == "delivered":
        await thread.run.deliver()
    await thread.edit(message, "@alpha stop")
    await thread.run.stopped()
    assert thread.run.texts[:1] == (["stp"] if which == "delivered" else [])
    await thread.edit(message, "@alpha stop!")
    await chat.acknowledged()
    assert thread.run.stops == [False]


async def test_a_late_edit_does_not_override_a_newer_one_that_was_delivered_before_a_restart(process, runs, slack):
    async with process() as chat:
        thread = await chat.start_shown()
        await thread.edit(thread.ts, "@alpha look closely")
        await thread.run.injected(f"{CORRECTED} look closely")
        await thread.run.deliver()
    message = SlackMessage("T0LOCAL", chat.general, thread.ts, None, "U0ANA", "look clsely", (), direct=False)
    edit = PendingMessage(message, "alpha", message.text, f"{message.id}:edit:{thread.ts}", edited_ts=thread.ts)
    await runs.admit(message.place.conversation_id, InboxEntry(edit.id, "edit", asdict(edit)))
    thread_read = chat.hold("conversations.replies", times=50)
    async with process():
        run = await thread.next_run()
        await thread.say("continue")
        await run.injected("continue")
        slack.faults.clear()
        thread_read.set()
        await run.answer("ok")
        await thread.shows("ok")


@pytest.mark.parametrize("words", ["!mute", "!new", "!status", "!statsu"])
async def test_a_pending_message_that_is_edited_to_a_command_is_not_read_and_its_author_hears_why(chat, words):
    thread = await chat.start_shown()
    reply = await thread.inject("and this")
    await thread.edit(reply, words)
    await chat.slack.until(lambda ws: any("An edit is no command" in each.text for each in ws.whispers(thread.channel)))
    await chat.acknowledged()
    await thread.inject("the next one")
    assert thread.run.texts == ["the next one"]
