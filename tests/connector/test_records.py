from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, cast

import pytest
from chat import Chat, Thread
from hypothesis import given
from hypothesis import strategies as st

from connector import texts
from connector.events import SlackMessage, ThreadAddress
from connector.formatting.content import Content
from connector.protocols import InboxEntry, SharedFile, StateChanges, ThreadFacts, change_fact
from connector.records import PendingMessage, RunRecord
from connector.runs.inbox import Inbox

UNKNOWN = {"a": "new form"}
PENDING_POST = {"number": 1, "texts": ["a &lt; b"], "by_agent": True}


@pytest.fixture
async def thread(slack, sessions) -> Thread:
    return await Chat(slack, sessions).say("look")


@pytest.fixture
def stored(store, slack, thread):
    """Let another version store something in the thread, and end."""
    conversation = f"{slack.team_id}:{thread.chat.general}:{thread.ts}"

    async def stored(changes: StateChanges | None, *entries: InboxEntry) -> None:
        for entry in entries:
            await store.admit(conversation, entry, "alpha")
        if changes is not None:
            claim = await store.claim(conversation, "another version", 0.1)
            await store.write(conversation, claim.token, changes)

    return stored


@pytest.fixture
def earlier_run(slack, thread) -> dict:
    """The record of a run that has begun."""
    message = SlackMessage(slack.team_id, thread.chat.general, thread.ts, None, "U0ANA", "look", (), direct=False)
    first = PendingMessage(message, "alpha", "look", message.id)
    return asdict(RunRecord("r", first, was_waiting=False, newest_ts=thread.ts, has_hourglass=False))


@pytest.mark.parametrize("run", [{"id": "r"}, {"id": "r", "first": "a new form"}, {"cleanup": ["a new form"]}])
async def test_an_unreadable_run_is_abandoned_and_its_readable_posts_are_sent(process, thread, stored, run):
    posts = {"1": PENDING_POST, "2": UNKNOWN} if "id" in run else {}
    await stored(StateChanges(run=run, posts=posts))
    async with process() as chat:
        expected = [*(["a &lt; b"] if posts else []), texts.UNREADABLE_RUN]
        await chat.slack.until(lambda _: sorted(thread.texts) == sorted(expected))
        await chat.start()


async def test_the_files_and_blocks_of_an_unreadable_run_are_in_messages(process, thread, stored, store, client):
    message = {"by_agent": True, "texts": ["summary"]}
    block, file = {**message, "number": 1, "native": "# Plan"}, {**message, "number": 2, "file": "**whole** " * 1000}
    long = {**block, "texts": ["word " * 2000]}
    shared = {**message, "number": 3, "texts": [], "shared": [asdict(SharedFile("F1", "a&b.png", "", "d"))]}
    await stored(StateChanges(run={"id": "r"}, posts={"1": long, "2": file, "3": shared, "4": {**block, "number": 4}}))
    place = ThreadAddress(thread.chat.slack.team_id, thread.chat.general, thread.ts)
    await client.post(place, Content("# Plan", ({"type": "markdown", "text": "# Plan"},)), "r:1:native")
    async with process() as chat:
        missing = "⚠️ I may not have shared a&amp;b.png. If this thread lacks it, please ask again."
        expected = sorted(["# Plan", missing, "summary", texts.UNREADABLE_RUN])
        await chat.slack.until(lambda _: sorted(t for t in thread.texts if "*whole*" not in t) == expected)
        await chat.slack.until(lambda _: sum(text.count("*whole*") for text in thread.texts) == 1000)
        while (await store.record(place.conversation_id)).run:  # noqa: ASYNC110 - until the cleanup is done
            await asyncio.sleep(0.05)
    assert not any("word" in text for text in thread.texts), "the block has them"


async def test_a_run_whose_first_message_has_an_invalid_ts_is_abandoned(process, thread, stored, earlier_run):
    earlier_run["first"]["message"]["ts"] = "soon"
    await stored(StateChanges(run=earlier_run))
    async with process():
        await thread.shows(texts.UNREADABLE_RUN)
        await thread.say("@alpha continue")
        assert (await thread.next_run()).prompt == "continue"


@pytest.mark.parametrize("kind", ["message", "command", "edit", "stop", "a new kind"])
async def test_an_unreadable_entry_is_closed_and_an_unreadable_message_reported(process, thread, stored, kind):
    await stored(None, InboxEntry(f"T0LOCAL:C0GENERAL:{thread.ts}:x", kind, UNKNOWN))
    reported = [texts.UNREADABLE_MESSAGE] if kind in {"message", "command"} else []
    async with process():
        await thread.shows(*reported)
        await thread.say("@alpha continue")
        await (await thread.next_run()).answer("ok")
        await thread.shows(*reported, "ok")


async def test_an_unreadable_post_is_reported_beside_a_readable_run(process, thread, stored, earlier_run):
    await stored(StateChanges(run=earlier_run, posts={"earlier": UNKNOWN, "other": PENDING_POST}))
    async with process() as chat:
        await (await thread.next_run()).answer("ok")
        expected = sorted([texts.UNREADABLE_POST, "a &lt; b", "ok"])
        await chat.slack.until(lambda _: sorted(thread.texts) == expected)


def pending(seq: int, written_s: float) -> PendingMessage:
    message = SlackMessage("T1", "C1", f"{written_s:.6f}", "1.000000", "U1", "look", (), direct=False)
    return PendingMessage(message, "alpha", "look", message.id, seq)


def inbox(held_seq: int = 0, stopped_s: float = 0.0) -> Inbox:
    return Inbox(cast("Any", None), held_seq, stopped_s)  # without display names


def test_an_older_stop_that_arrives_late_frees_nothing() -> None:
    pendings = inbox()
    older, newer = pending(7, 6.28), pending(8, 9.0)
    assert pendings.hold(7.5)
    pendings.add(older)
    pendings.add(newer)
    assert not pendings.hold(6.0)
    assert pendings.latest_held_seq() == 7
    assert (pendings.is_held(older), pendings.is_held(newer)) == (True, False)
    assert pendings.run_starter == newer


def test_the_next_owner_holds_nothing_by_number_while_a_newer_message_starts_a_run() -> None:
    pendings = inbox()
    for each in (pending(7, 9.0), pending(8, 6.0)):
        pendings.add(each)
    pendings.hold(7.5)
    assert pendings.latest_held_seq() == 8
    assert pendings.announce_held_back() == []
    assert pendings.held_seq == 0


@given(st.lists(st.tuples(st.sampled_from(["message", "stop"]), st.integers(2, 9)), max_size=12))
def test_a_message_is_held_if_a_stop_is_newer_than_it_whichever_arrives_first(events: list[tuple[str, int]]) -> None:
    pendings, messages = inbox(), []
    for seq, (kind, at) in enumerate(events, 1):
        if kind == "stop":
            pendings.hold(at)
            continue
        messages.append(pending(seq, at + seq / 1000))
        pendings.add(messages[-1])
    for each in messages:
        stops = [at for kind, at in events if kind == "stop"]
        assert pendings.is_held(each) == any(each.written_s <= at for at in stops)


def test_the_next_owner_holds_what_the_previous_one_stored_before_the_stop() -> None:
    pendings = inbox(held_seq=3, stopped_s=9.0)
    assert [pendings.is_held(pending(seq, 9.0)) for seq in (3, 4)] == [True, False]
    assert not pendings.is_held(pending(2, 9.5)), "it was written after the stop and accepted before an older one"


def test_a_thread_keeps_a_bounded_number_of_changes_and_mixes_none_up():
    facts: dict[str, str] = {}
    at = {f"1700{number:06}.{number:06}": f"1700001000.{number:06}" for number in range(3000)}
    for ts, changed_at in at.items():
        facts |= change_fact(ts, changed_at)
    thread = ThreadFacts("alpha", facts)
    known = {ts for ts in at if thread.changed(ts)}
    assert len(known) == len(facts) < 1100
    assert all(thread.changed(ts) == at[ts] for ts in known)
    assert max(at) in known
