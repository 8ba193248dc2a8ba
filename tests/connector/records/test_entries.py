"""Records that another version stored and this one cannot read are reported, and block nothing."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from chat import Chat, Thread

from connector import texts
from connector.events import SlackMessage
from connector.protocols import InboxEntry, StateChanges
from connector.records.entries import PendingMessage
from connector.records.runs import RunRecord

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


async def test_a_run_whose_first_message_has_an_invalid_ts_is_abandoned(process, thread, stored, earlier_run):
    earlier_run["first"]["message"]["ts"] = "soon"
    await stored(StateChanges(run=earlier_run))
    async with process():
        await thread.shows(texts.UNREADABLE_RUN)
        await thread.say("@alpha continue")
        assert (await thread.next_run()).prompt == "continue"


@pytest.mark.parametrize("kind", ["message", "edit", "stop", "a new kind"])
async def test_an_unreadable_entry_is_closed_and_an_unreadable_message_reported(process, thread, stored, kind):
    await stored(None, InboxEntry(f"T0LOCAL:C0GENERAL:{thread.ts}:x", kind, UNKNOWN))
    reported = [texts.UNREADABLE_MESSAGE] if kind == "message" else []
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
