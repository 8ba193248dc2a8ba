"""Records that another version stored and this one cannot read are reported, and block nothing."""

from __future__ import annotations

import pytest
from chat import Chat, Thread

from connector import texts
from connector.events import SlackMessage
from connector.protocols import InboxEntry, StateChanges
from connector.records.inbox import PendingMessage

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
    """A run as a version stored it that did not count stops."""
    message = SlackMessage(slack.team_id, thread.chat.general, thread.ts, None, "U0ANA", "look", (), direct=False)
    first = {**PendingMessage(message, "alpha", "look", message.id).to_dict(), "id": message.id, "seq": 0}
    return {"id": "r", "first": first, "was_waiting": False, "newest_ts": thread.ts, "stopped_by": None, "failed": None}


@pytest.mark.parametrize("run", [{"id": "r"}, {"id": "r", "first": "a new form"}, {"artifacts": ["a new form"]}])
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


async def test_a_run_that_an_earlier_version_stopped_does_not_begin(process, thread, stored, earlier_run, sessions):
    await stored(StateChanges(run={**earlier_run, "stopped_by": "U0BEN"}))
    async with process():
        await thread.shows("🛑 Stopped by Ben.")
    assert sessions.prompts == []


async def test_of_a_run_that_failed_in_an_earlier_version_only_the_artifacts_are_removed(  # noqa: PLR0917 - fixtures
    process, thread, stored, earlier_run, sessions, client
):
    place = {"channel": thread.chat.general, "thread_ts": thread.ts}
    posted = await client._client.chat_postMessage(**place, text="⚙️ Working…")
    traces = {"channel": thread.chat.general, "first_ts": thread.ts, "statuses": [posted["ts"]], "has_hourglass": False}
    run = {**earlier_run, "failed": "The model is away.", "artifacts": [traces]}
    await stored(StateChanges(run=run, posts={"end": ""}))
    async with process():
        await thread.shows()
    assert sessions.prompts == []
