from __future__ import annotations

import asyncio

import pytest
from chat import EYES, HOURGLASS, Thread

from connector import Instance, Participation, Persona, SlackOptions
from connector.protocols import FileLimits
from local_slack import HeldUntil


async def upload(chat, *files, text="", thread=None, channel="general"):
    """Post a message of Ana's with files; return its ts."""
    return await chat.ana.share(channel, dict(files), text, thread=thread)


async def edited(chat, ts, thread_ts, *, now, before, after_s):
    """Deliver the edit of a message of Ana's, whose files were these and are those."""
    message = {"type": "message", "user": "U0ANA", "ts": ts, "thread_ts": thread_ts, "text": "read"}
    at = f"{float(ts) + after_s:.6f}"
    chat.deliver(
        {
            "type": "message",
            "subtype": "message_changed",
            "message": {**message, "files": now, "edited": {"user": "U0ANA", "ts": at}},
            "previous_message": {**message, "files": before},
            "channel": chat.general,
            "ts": at,
            "event_ts": at,
        }
    )
    await chat.acknowledged()


def file_json(chat, content):
    """Return a kept file as Slack does."""
    return as_json(chat.slack.workspace.files.get(next(i for i, kept in chat.sessions.kept.items() if kept == content)))


def as_json(found):
    private = f"{found.base_url}files-pri/{found.team}-{found.id}/download/a"
    return {"id": found.id, "name": found.name, "size": found.size, "url_private_download": private}


def names(files):
    return [each.name for each in files]


A, B = ("a.txt", b"one"), ("b.csv", b"x,y")


async def test_all_files_of_a_message_are_stored_before_the_run_reads_it(chat):
    ts = await upload(chat, A, B, text="@alpha read")
    run = await chat.sessions.next_run()
    assert (run.prompt, names(run.files)) == ("read", ["a.txt", "b.csv"])
    assert sorted(chat.sessions.kept.values()) == [b"one", b"x,y"]
    thread = Thread(chat, ts, run=run)
    await run.answer("ok")
    await thread.shows("ok")


async def test_a_later_message_waits_for_the_files_of_an_earlier_one_and_an_urgent_one_does_not(chat):
    thread = await chat.start()
    chat.sessions.hold_keeping = asyncio.Event()
    first = await upload(chat, A, text="see this", thread=thread.ts)
    second = await thread.say("and this")
    await chat.acknowledged()
    assert thread.run.texts == []
    await thread.say("!now")
    await thread.run.injected("see this", "and this", "!now")
    assert "still being downloaded" in thread.run.injections[0].files[0].note
    chat.sessions.hold_keeping.set()
    await thread.run.deliver()
    for ts in (first, second):
        await thread.marked(ts, EYES)
    await upload(chat, B, text="last", thread=thread.ts)
    await thread.run.until(lambda run: run.texts[-1] == "last")
    assert thread.run.injections[-1].files[0].note == "b.csv: text/csv"


async def test_an_urgent_message_takes_along_one_with_files_for_which_the_thread_is_being_read(chat):
    thread = await chat.start()
    await thread.say("the build is red", who="ben")
    reading = chat.hold("conversations.replies")
    chat.sessions.hold_keeping = asyncio.Event()
    await upload(chat, A, text="see this", thread=thread.ts)
    await reading.reached.wait()
    await thread.say("!now")
    await thread.run.injected("see this", "!now")
    assert "still being downloaded" in thread.run.injections[0].files[0].note
    chat.sessions.hold_keeping.set()
    await chat.slack.until(lambda _: list(chat.sessions.kept.values()) == [b"one"])


@pytest.mark.parametrize("is_urgent", [False, True])
async def test_a_message_that_arrives_late_with_files_is_read_before_newer_ones_unless_they_are_urgent(chat, is_urgent):
    thread = await chat.start()
    await chat.acknowledged()
    chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    chat.sessions.hold_keeping = asyncio.Event()
    await upload(chat, A, text="see this", thread=thread.ts)
    newer = "!now" if is_urgent else "what is it?"
    await thread.inject(newer)
    arrives.set()
    await thread.run.injected(*[newer] * is_urgent)
    await chat.acknowledged()
    assert thread.run.texts == [newer] * is_urgent
    chat.sessions.hold_keeping.set()
    await thread.run.injected(*sorted(("see this", newer)))
    assert next(each.files for each in thread.run.injections if each.files)[0].note == "a.txt: text/plain"
    await thread.run.deliver()


async def test_a_message_that_arrives_late_with_files_separates_none_from_a_later_urgent_one(chat):
    thread = await chat.start()
    await chat.acknowledged()
    chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    chat.sessions.hold_keeping = asyncio.Event()
    await upload(chat, A, text="see this", thread=thread.ts)
    await thread.inject("on branch foo")
    await thread.inject("!do it there")
    arrives.set()
    await chat.acknowledged()
    await thread.inject("!go on")
    assert thread.run.texts == ["on branch foo", "!do it there", "see this", "!go on"]


async def test_talk_that_arrives_as_a_message_with_files_is_read_once(process):
    async with process(Instance("alpha", Persona("Alpha", ":owl:"), Participation(steerers="anyone"))) as chat:
        thread = await chat.start()
        await thread.say("@chloe hi", who="ben")
        await chat.acknowledged()
        chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
        await chat.ben.share("general", dict((A,)), "!careful", thread=thread.ts)
        await thread.inject("and the tests")
        arrives.set()
        await chat.acknowledged()
        await thread.inject("and the docs")
        talk = [each.text for injection in thread.run.injections for each in injection.talk.messages]
        assert [*thread.run.texts, *talk].count("!careful") == 1


async def test_an_edit_that_adds_a_file_during_a_download_keeps_the_talk_before_the_message(chat):
    thread = await chat.start()
    await thread.say("use postgres", who="ben")
    await chat.acknowledged()
    keeping = chat.sessions.hold_keeping = asyncio.Event()
    ts = await upload(chat, A, text="read", thread=thread.ts)
    await thread.contains("Downloading a.txt")
    a = as_json(chat.slack.workspace.message("general", ts).files[0])
    await edited(chat, ts, thread.ts, before=[a], now=[a, {**a, "id": "F0OTHER"}], after_s=0.5)
    await thread.accept("and this")  # after the edit
    keeping.set()
    await thread.run.injected("read", "and this")
    assert [each.text for each in thread.run.injections[0].talk.messages] == ["use postgres"]


async def test_a_message_that_an_urgent_one_took_along_is_withdrawn_without_a_word_on_its_file(chat):
    thread = await chat.start_shown()
    chat.sessions.hold_keeping = asyncio.Event()
    ts = await upload(chat, A, text="see this", thread=thread.ts)
    await thread.contains("Downloading a.txt")
    await thread.say("!now")
    await thread.run.injected("see this", "!now")
    await thread.delete(ts)
    await thread.run.injected("!now")
    await thread.run.deliver()
    await chat.slack.until(lambda _: chat.sessions.dropped)
    await thread.run.progress("thinking")
    await chat.slack.until(lambda _: not any("Downloading" in text for text in thread.texts))
    await thread.run.answer("ok")
    await thread.shows("ok")


async def test_the_files_of_a_newcomer_are_read_once_the_owner_lets_them_steer(process):
    async with process(Instance("alpha", Persona("Alpha", ":owl:"), Participation(asks_consent=True))) as chat:
        thread = await chat.start()
        await chat.ben.share("general", dict((A,)), "@alpha see this", thread=thread.ts)
        question = await thread.contains("Let Ben steer this run?")
        await chat.ana.click("general", question.ts, "steer_allow")
        await thread.run.injected("see this")
        assert thread.run.injections[0].files[0].note == "a.txt: text/plain"


async def test_a_run_is_stopped_while_its_files_are_fetched(chat):
    chat.sessions.hold_keeping = asyncio.Event()
    thread = Thread(chat, await upload(chat, A, text="@alpha read"))
    await thread.contains("Downloading a.txt")
    await thread.cross()
    await thread.contains("🛑")
    assert chat.sessions.prompts == []
    await thread.marked(thread.ts, HOURGLASS, gone=True)


async def test_the_author_and_the_model_hear_why_a_file_cannot_be_read(process):
    async with process(options=SlackOptions(files=FileLimits(most_bytes=3))) as chat:
        thread = Thread(chat, await upload(chat, A, ("big.bin", b"four"), text="@alpha read"))
        run = await thread.next_run()
        assert [each.problem for each in run.files] == ["", "it is too large (0.0 MB; at most 0 MB)."]
        assert run.files[1].note == "The file big.bin cannot be read: it is too large (0.0 MB; at most 0 MB)."
        await run.answer("ok")
        await thread.shows("📎 I cannot read “big.bin”: it is too large (0.0 MB; at most 0 MB).", "ok")


async def test_an_edit_that_adds_and_removes_files_is_honoured_before_the_message_is_read(chat):
    thread = await chat.start()
    ts = await upload(chat, A, B, text="read", thread=thread.ts)
    await thread.run.injected("read")
    a, b = (file_json(chat, content) for _, content in (A, B))
    await edited(chat, ts, thread.ts, now=[b], before=[a, b], after_s=10)
    await thread.run.until(lambda run: names(run.injections[0].files) == ["b.csv"] if run.injections else False)
    assert (thread.run.texts, chat.sessions.dropped) == (["read"], [a["id"]])
    await thread.run.deliver()
    await edited(chat, ts, thread.ts, now=[a, b], before=[b], after_s=20)
    correction = "(Correction of my earlier message. It now reads:) read"
    await thread.run.injected("read", correction)
    assert names(thread.run.injections[1].files) == ["a.txt"]


async def test_a_deleted_message_leaves_no_files(chat):
    thread = await chat.start()
    ts = await upload(chat, A, text="read", thread=thread.ts)
    await thread.run.injected("read")
    await thread.delete(ts)
    await thread.run.injected()
    await chat.slack.until(lambda _: chat.sessions.dropped)
    assert chat.sessions.kept == {}


async def test_a_file_of_two_messages_stays_if_one_is_deleted(chat):
    thread = await chat.start()
    first = await upload(chat, A, text="read", thread=thread.ts)
    await thread.run.injected("read")
    file = file_json(chat, A[1])
    second = f"{float(first) + 0.00001:.6f}"
    again = {"type": "message", "subtype": "file_share", "files": [file]}
    chat.deliver(chat.posted(second, "again", thread_ts=thread.ts) | again)
    await thread.run.injected("read", "again")
    await thread.delete(first)
    await thread.run.injected("again")
    await thread.say("more")
    await thread.run.injected("again", "more")
    assert (list(chat.sessions.kept), chat.sessions.dropped) == ([file["id"]], [])
    assert thread.run.injections[0].files[0].note == "a.txt: text/plain"


async def test_a_file_that_is_deleted_before_it_is_read_is_named_as_such(chat):
    chat.sessions.hold_setup = asyncio.Event()
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS)
    hold = chat.hold("files.info")
    message = {"type": "message", "subtype": "file_share", "files": [{"id": "F404", "name": "gone.txt"}]}
    chat.deliver(chat.posted(f"{float(thread.ts) + 1:.6f}", "read", thread_ts=thread.ts) | message)
    await chat.acknowledged()
    hold.set()
    chat.sessions.hold_setup.set()
    run = await thread.next_run()
    await run.injected("read")
    assert run.injections[0].files[0].problem == "it was deleted."
    await thread.contains("📎 I cannot read “gone.txt”: it was deleted.")
