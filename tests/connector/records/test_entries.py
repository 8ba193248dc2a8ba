"""What another version has kept, and nobody here can read, is told, and holds nothing up."""

from __future__ import annotations

from contextlib import aclosing

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient
from successors import begun, texts

from connector.events import SlackMessage
from connector.protocols import InboxEntry, StateChanges
from connector.records.inbox import PendingMessage
from connector.texts import UNREADABLE_POST as POST
from service.store import open_run_store

RUN = "⚠️ I cannot resume a run that another version of this service started. Please send your request again."
MESSAGE = "📭 Not accepted: I cannot read a message that another version saved. Please send it again."
PENDING = {"number": 1, "texts": ["a &lt; b"], "by_agent": True}


@pytest.fixture
async def root(ana) -> str:
    return await ana.say("general", "look")


@pytest.fixture
def kept(slack, root, tmp_path):
    """Have another version keep something in a thread, and end."""
    conversation = f"{slack.team_id}:{slack.channel('general').id}:{root}"

    async def kept(changes: StateChanges | None, *entries: InboxEntry) -> None:
        async with aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store:
            for entry in entries:
                await store.admit(conversation, entry, "alpha")
            if changes is not None:
                claim = await store.claim(conversation, "another version", 60)
                await store.write(conversation, claim.token, changes)

    return kept


@pytest.mark.parametrize("run", [{"id": "r"}, {"id": "r", "first": "a new form"}, {"traces": ["a new form"]}])
async def test_a_run_is_given_up_and_what_it_had_to_say_is_said(  # noqa: PLR0917 - fixtures
    slack, sessions, process, ana, root, kept, run
):
    sessions.obedient = False
    posts = {"1": PENDING, "2": {"a": "new form"}} if "id" in run else {}
    await kept(StateChanges(run=run, posts=posts))
    async with process():
        await slack.until(lambda _: sorted(texts(slack, root)) == sorted([*(["a &lt; b"] if posts else []), RUN]))
        _, another = await begun(slack, ana, sessions)
        await another.answer("ok")


@pytest.mark.parametrize("kind", ["message", "edit", "stop", "a new kind"])
async def test_an_entry_is_closed_and_who_wrote_a_message_is_told(  # noqa: PLR0917 - fixtures
    slack, sessions, process, ana, root, kept, kind
):
    sessions.obedient = False
    await kept(None, InboxEntry(f"T0LOCAL:C0GENERAL:{root}:x", kind, {"a": "new form"}))
    async with process():
        if kind == "message":
            await slack.until(lambda _: texts(slack, root) == [MESSAGE])
        await ana.say("general", "@alpha go on", thread=root)
        run = await sessions.next_run()
        await run.answer("ok")
        await slack.until(lambda _: texts(slack, root) == [MESSAGE, "ok"] if kind == "message" else ["ok"])


async def test_a_text_that_cannot_be_read_is_told_beside_a_run_that_can(slack, sessions, process, root, kept):
    sessions.obedient = False
    await kept(StateChanges(run=an_earlier_run(slack, root), posts={"earlier": {"a": "new form"}, "other": PENDING}))
    async with process():
        run = await sessions.next_run()
        await run.answer("ok")
        await slack.until(lambda _: sorted(texts(slack, root)) == sorted([POST, "a &lt; b", "ok"]))


async def test_a_run_that_an_earlier_version_was_told_to_stop_does_not_begin(slack, sessions, process, root, kept):
    await kept(StateChanges(run={**an_earlier_run(slack, root), "stopped_by": "U0BEN"}))
    async with process():
        await slack.until(lambda _: texts(slack, root) == ["🛑 Stopped by Ben."])
    assert sessions.prompts == []


async def test_a_run_whose_first_message_has_no_readable_time_is_given_up(slack, sessions, process, root, kept):
    ana = slack.as_person("ana")
    sessions.obedient = False
    run = an_earlier_run(slack, root)
    run["first"]["message"]["ts"] = "soon"
    await kept(StateChanges(run=run))
    async with process():
        await slack.until(lambda _: texts(slack, root) == [RUN])
        await ana.say("general", "@alpha continue", thread=root)
        run = await sessions.next_run()
        assert run.prompt == "continue"
        await run.answer("ok")


async def test_of_a_run_that_failed_in_an_earlier_version_only_what_is_left_goes(slack, sessions, process, root, kept):
    async with aiohttp.ClientSession() as session:
        bot = AsyncWebClient(slack.bot_token, slack.api_url, session=session)
        posted = await bot.chat_postMessage(channel=slack.channel("general").id, text="⚙️ Working…", thread_ts=root)
    traces = {"channel": posted["channel"], "first_ts": root, "statuses": [posted["ts"]], "is_marked": False}
    run = {**an_earlier_run(slack, root), "failed": "The model is away.", "traces": [traces]}
    await kept(StateChanges(run=run, posts={"end": ""}))
    async with process():
        await slack.until(lambda _: texts(slack, root) == [])
    assert sessions.prompts == []


def an_earlier_run(slack, root):
    """A run as it was written down before a run knew how often it was stopped, and that it is over."""
    message = SlackMessage(slack.team_id, slack.channel("general").id, root, None, "U0ANA", "look", (), direct=False)
    first = {**PendingMessage(message, "alpha", "look", message.id).written(), "id": message.id, "seq": 0}
    return {"id": "r", "first": first, "was_waiting": False, "newest_ts": root, "stopped_by": None, "failed": None}
