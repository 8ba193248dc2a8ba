"""Stops: in every way, for pending messages, and while a run starts or ends or Slack is slow."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import pytest
from chat import ENVELOPE, EYES, HOURGLASS, ONE_PENDING, Thread

from connector import RunFailed
from connector.events import OPERATOR, SlackMessage, StopRequest
from connector.notes import admit_stop
from connector.protocols import InboxEntry
from connector.records import PendingMessage, parse_run_record
from local_slack import DropAfterCall


async def by_word(thread, status) -> None:
    await thread.say("@alpha stop", who="ben")


async def by_cross_on_the_status(thread, status) -> None:
    await thread.cross(status.ts, who="ben")


async def by_cross_on_the_first_message(thread, status) -> None:
    await thread.cross(who="ben")


async def by_the_button_of_slack(thread, status) -> None:
    await thread.chat.ben.stop_session(thread.channel, thread.ts)


async def by_the_button_of_the_status(thread, status) -> None:
    await thread.chat.ben.click(thread.channel, status.ts, "stop")


WAYS = [
    by_word,
    by_cross_on_the_status,
    by_cross_on_the_first_message,
    by_the_button_of_slack,
    by_the_button_of_the_status,
]


@pytest.mark.parametrize(
    ("first", "second"), [*zip(WAYS, [*WAYS[1:], WAYS[0]], strict=True)], ids=lambda way: way.__name__
)
async def test_the_first_stop_is_graceful_and_the_second_immediate_in_every_way(chat, first, second):
    thread = await chat.start()
    status = await thread.status()
    await first(thread, status)
    await thread.run.stopped(False)
    await second(thread, status)
    await thread.run.stopped(False, True)
    await thread.run.answer("", status="cancelled")
    await thread.shows("🛑 Stopped by Ben.")


async def test_an_operator_stops_a_run_gracefully_then_at_once_and_no_later_run(chat, store):
    thread = await chat.start()
    await thread.status()
    conversation_id = f"{chat.slack.team_id}:{chat.general}:{thread.ts}"
    stored = (await store.record(conversation_id)).run

    async def stop() -> None:
        async def admit(conversation_id, entry):
            await store.admit(conversation_id, entry, None)

        await admit_stop(admit, conversation_id, parse_run_record(stored))

    await stop()
    await thread.run.stopped(False)
    await stop()
    await thread.run.stopped(False, True)
    await thread.run.answer("", status="cancelled")
    await thread.shows("🛑 Stopped by an operator.")
    await thread.say("@alpha continue")
    await thread.next_run()
    await stop()
    await is_not_stopped(thread)


async def test_a_stop_of_a_run_that_has_ended_leaves_the_next_message_alone(process, slack, sessions, store):
    ts = await slack.as_person("ana").say("general", "@alpha look")
    place = SlackMessage(slack.team_id, slack.channel("general").id, ts, None, "U0ANA", "look", (), direct=False)
    waiting, late = PendingMessage(place, "alpha", "look", place.id), f"{float(ts) + 1:.6f}"
    stop = StopRequest("T:stop", OPERATOR, late, run="the run before")
    for entry in (InboxEntry(place.id, "message", asdict(waiting)), InboxEntry(stop.id, "stop", asdict(stop))):
        await store.admit(place.place.conversation_id, entry, "alpha")
    async with process():
        assert (await sessions.next_run()).prompt == "look"


WORDS = ["Stop!", "alpha: stop", "!stop", "! Stop!", "alpha: !halt", "@alpha !cancel.", "!stop all", "!stop Now!"]


@pytest.mark.parametrize("word", WORDS)
async def test_a_stop_word_stops_and_is_not_injected(chat, word):
    thread = await chat.start()
    await thread.say(word)
    await thread.run.until(lambda r: bool(r.stops or r.injections))
    assert (thread.run.stops, thread.run.injections) == ([False], [])


@pytest.mark.parametrize("text", ["stop at the third chapter", "stop\nthen continue"])
async def test_a_sentence_with_the_word_stop_is_injected(chat, text):
    thread = await chat.start()
    await thread.inject(text)
    assert thread.run.stops == []


async def test_a_stop_word_without_a_run_is_answered(chat):
    thread = await chat.start()
    await thread.run.answer("done")
    await thread.shows("done")
    await thread.say("stop")
    await thread.contains("Nothing is running here.")
    assert chat.sessions.idle


async def test_other_reactions_and_crosses_on_other_messages_have_no_effect(chat):
    thread = await chat.start()
    status = await thread.status()
    await chat.ana.react("general", status.ts, "eyes")
    await (await chat.say("not for an agent")).cross()
    await is_not_stopped(thread)


async def is_not_stopped(thread, *stops: bool) -> None:
    """Check that the events before have added no stop."""
    await thread.chat.acknowledged()
    await thread.accept("a message")
    assert thread.run.stops == [*stops]


def click(thread, status, *, at_s: float = 0, run: str = "") -> dict:
    """Return what Slack sends after a click on the button of a status message."""
    run = run or status.body.metadata["event_payload"]["key"].partition(":status")[0]
    place = {"message_ts": status.ts, "channel_id": thread.chat.general, "thread_ts": thread.ts}
    return {
        "type": "block_actions",
        "team": {"id": thread.chat.slack.team_id},
        "user": {"id": thread.chat.ben.person.id, "team_id": thread.chat.slack.team_id},
        "container": {"type": "message", **place},
        "channel": {"id": thread.chat.general},
        "message": {"user": thread.chat.slack.bot_user_id, "ts": status.ts, "thread_ts": thread.ts},
        "actions": [{"action_id": "stop", "value": run, "action_ts": f"{at_s or float(status.ts) + 60:.6f}"}],
    }


def cross(thread) -> dict:
    """Return the event of a ❌ on the first message."""
    item = {"type": "message", "channel": thread.chat.general, "ts": thread.ts}
    at = f"{float(thread.ts) + 1:.6f}"
    return {"type": "reaction_added", "user": "U0ANA", "reaction": "x", "item": item, "event_ts": at}


@pytest.mark.parametrize("is_click", [True, False])
async def test_a_stop_that_slack_delivers_twice_is_one_stop(chat, is_click):
    thread = await chat.start()
    status = await thread.status()
    for _ in range(2):
        if is_click:
            chat.deliver_payload(click(thread, status), "interactive")
        else:
            chat.deliver(cross(thread))
    await thread.run.stopped()
    await is_not_stopped(thread, False)


@pytest.mark.parametrize("fields", [{"run": "a-run-of-yesterday"}, {"at_s": 1.0}], ids=["another run", "older"])
async def test_a_click_on_the_status_of_an_earlier_run_stops_nothing(chat, fields):
    thread = await chat.start()
    chat.deliver_payload(click(thread, await thread.status(), **fields), "interactive")
    await is_not_stopped(thread)


async def test_a_cross_and_an_earlier_stop_word_in_the_thread_of_a_later_run_stop_nothing(chat):
    thread = await chat.start()
    await thread.run.answer("ok")
    await thread.shows("ok")
    await thread.say("continue")
    await thread.next_run()
    await thread.cross()
    chat.deliver(chat.posted(f"{float(thread.ts) + 0.000001:.6f}", "stop", thread_ts=thread.ts))
    await is_not_stopped(thread)


async def test_the_button_of_slack_in_another_thread_stops_nothing(chat):
    thread, other = await chat.start(), await chat.say("another thread")
    await chat.ana.stop_session("general", other.ts)
    await is_not_stopped(thread)


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


@pytest.mark.parametrize("is_own", [False, True], ids=["by another person", "by its author"])
async def test_only_its_author_withdraws_a_message_whose_run_is_stopped_during_set_up(chat, thread, is_own):
    thread.run.listening = False
    pending = await thread.accept("waits")
    await thread.stopped()
    await thread.marked(thread.ts, HOURGLASS, gone=True)
    chat.sessions.obedient, chat.sessions.hold_setup = True, asyncio.Event()
    await thread.accept("continue")
    await chat.slack.until(lambda _: not chat.sessions.idle)
    await thread.cross(pending, who="ana" if is_own else "ben")
    await chat.acknowledged()
    chat.sessions.hold_setup.set()
    await thread.contains(
        "Ana. 1 message has not been read yet" if is_own else "Ben. 2 messages have not been read yet"
    )
    assert not thread.message(pending).reacted(EYES)
    await thread.marked(pending, HOURGLASS, gone=True)
    await thread.say("now")
    run = await thread.next_run()
    await run.injected(*(["now"] if is_own else ["continue", "now"]))
    assert run.prompt == ("continue" if is_own else "waits")
    await thread.marked(pending, ENVELOPE if is_own else EYES, gone=is_own)


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


NOTHING_RUNS = "Nothing is running here."


@pytest.fixture
async def answered(chat) -> Thread:
    """A thread whose run has ended; the bot knows Ana's name."""
    thread = await chat.start("@alpha first")
    await thread.run.answer("first answer")
    await thread.shows("first answer")
    return thread


async def stop_by(how: str, thread, who: str = "ana") -> None:
    await (thread.cross(who=who) if how == "cross" else thread.say("@alpha stop", who))


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
    await thread.accept("a message")
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


def withdrawn(text: str) -> str:
    return f"🗑️ Withdrawn: “{text}”. I will not read it."


async def test_the_authors_cross_on_a_pending_message_withdraws_it_and_says_so(chat):
    thread = await chat.start()
    pending = await thread.inject("also the budget")
    await thread.cross(pending)
    await thread.contains(withdrawn("also the budget"))
    await thread.marked(pending, ENVELOPE, gone=True)
    assert (thread.run.texts, thread.run.stops) == ([], [])
    await thread.run.answer("done")
    await thread.shows(withdrawn("also the budget"), "done")


async def test_a_cross_of_another_person_on_a_pending_message_withdraws_nothing(chat):
    thread = await chat.start()
    pending = await thread.inject("also the budget")
    await thread.cross(pending, who="ben")
    await is_not_stopped(thread)
    assert thread.run.texts[0] == "also the budget"
    await thread.run.answer("done")
    assert "done" in await thread.ended()


async def test_a_message_that_a_stop_holds_back_can_be_withdrawn(chat, thread):
    thread.run.listening = False
    pending = await thread.accept("waits")
    await thread.stopped()
    await thread.contains("1 message has not been read yet")
    await thread.cross(pending)
    await thread.contains(withdrawn("waits"))
    await thread.marked(pending, ENVELOPE, gone=True)
    await thread.say("now")
    run = await thread.next_run()
    assert (run.prompt, run.texts) == ("now", [])


async def test_the_authors_cross_needs_no_look_up_in_slack(chat):
    thread = await chat.start_shown()
    pending = await thread.accept("also the budget")
    looking = chat.hold("conversations.replies", times=9)
    await thread.cross(pending)
    await thread.run.injected()
    await thread.contains(withdrawn("also the budget"))
    looking.set()


async def test_the_authors_cross_on_a_message_that_was_read_is_answered(chat):
    thread = await chat.start_shown()
    read = await thread.accept("also the budget")
    await thread.run.deliver()
    await thread.cross(read, who="ben")
    await thread.cross(read)
    await thread.contains("I have read that message already.")
    assert thread.run.stops == []
    await thread.run.answer("done")
    await thread.contains("done")
    assert sum("already" in text for text in thread.texts) == 1
