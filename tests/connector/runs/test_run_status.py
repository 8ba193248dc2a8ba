from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import in_virtual_time

from connector.conversations.cleanup import Cleanup
from connector.events import SlackMessage
from connector.protocols import Claim, Persona, SlackOptions
from connector.records import PendingMessage, RunRecord
from connector.runs.background_tasks import BackgroundTasks
from connector.runs.run_status import RunStatus, remove_status
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed
from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse, RateLimited, ServerError

TODO = {"items": [{"text": "look", "status": "done"}, {"text": "write", "status": "in_progress"}]}
PERSONA = Persona("Alpha", ":owl:")
TESTS = {"tool": "bash", "id": "2", "label": "Running the tests", "args": {}}


@dataclass
class Run:
    """The lease and the owner of a status message; notes what it reports."""

    claim: Claim = field(default_factory=lambda: Claim(1))
    statuses: list[str] = field(default_factory=list)
    closed: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def confirm(self) -> None:
        await asyncio.sleep(0)

    async def keep_status(self, ts: str) -> None:
        self.statuses.append(ts)


@pytest.fixture
async def record(slack) -> RunRecord:
    root = await slack.as_person("ana").say("general", "look")
    message = SlackMessage("T0LOCAL", slack.channel("general").id, root, None, "U0ANA", "look", (), direct=False)
    return RunRecord("run", PendingMessage(message, "alpha", "look", message.id), was_waiting=False, newest_ts=root)


@pytest.fixture
def posts(slack, record):
    """Return the messages of the bot."""
    root = record.first.message
    return lambda: [m for m in slack.workspace.thread(root.channel, root.ts) if m.by_bot]


@pytest.fixture
def contains(slack, posts):
    """Wait for the status message with a text in it or in its blocks."""

    async def contains(text: str):
        return await slack.until(lambda _: next((m for m in posts() if text in f"{m.text} {m.body.blocks}"), None))

    return contains


@pytest.fixture
def show(client, record):
    """Show the status of a run, or of one that was taken over."""

    @asynccontextmanager
    async def show(taken_over: RunRecord | None = None, *, cards: bool = False):
        run = Run()
        options = SlackOptions(status_interval_s=0.01, cards=cards)
        keep_ts, on_closed = run.keep_status, run.closed.set_result
        async with BackgroundTasks(client, options=options) as background:
            status = RunStatus(background, run, taken_over or record, PERSONA, keep_ts=keep_ts, on_closed=on_closed)
            async with status.shown():
                yield status, run

    return show


def plan(status) -> None:
    status.on_event("tool:start", {"tool": "todo", "id": "1", "label": "Planning", "args": TODO})
    status.on_event("tool:end", {"tool": "todo", "id": "1", "success": True})
    status.on_event("thinking", {})


async def test_the_status_shows_the_call_the_to_do_list_the_counts_and_a_stop_button(show, contains):
    async with show() as (status, _):
        status.on_event("thinking", {})
        plan(status)
        status.on_event("injection:applied", {"ids": ["T:C:1", "T:C:2"]})
        status.on_event("tool:start", TESTS)
        message = await contains("Running the tests")
    phrase, todo, account, actions = message.body.blocks
    assert phrase["text"]["text"] == message.text == "⚙️ Incorporating your input… Running the tests…"
    assert todo["text"]["text"] == "*To do: 1 of 2 done*\n☑ look\n▶ write"
    assert account["elements"][0]["text"] == "2 messages read while working"
    (button,) = actions["elements"]
    assert (button["action_id"], button["text"]["text"]) == ("stop", "Stop")


async def test_many_events_at_once_cause_one_edit_with_the_latest_state(show, contains, slack):
    async with show() as (status, _):
        await contains("⚙️")
        for number in range(20):
            status.on_event("tool:start", {**TESTS, "id": str(number), "label": f"Step {number}"})
            status.on_event("tool:end", {"tool": "bash", "id": str(number), "success": True})
        status.on_event("compacting", {})
        await contains("Summarizing")
    assert sum(entry.get("method") == "chat.update" for entry in slack.record) == 1


async def test_after_a_stop_the_status_offers_to_stop_immediately(show, contains):
    async with show() as (status, _):
        status.on_event("tool:start", TESTS)
        await contains("Running")
        status.stop()
        message = await contains("⚙️ Stopping… Running the tests…")
        assert message.body.blocks[-1]["elements"][0]["text"]["text"] == "Stop now"


@pytest.mark.parametrize("error", ["cant_update_message", "edit_window_closed", "message_not_found"])
async def test_a_status_that_cannot_be_edited_is_posted_again(show, contains, posts, slack, error):
    async with show() as (status, run):
        first = await contains("⚙️")
        slack.faults.next("chat.update", ErrorResponse(error))
        status.on_event("thinking", {})
        second = await contains("⚙️ Thinking…")
        assert second.ts != first.ts
        await slack.until(lambda _: error == "message_not_found" or len(posts()) == 1)
        status.on_event("compacting", {})
        assert (await contains("Summarizing")).ts == second.ts, "once for each loss"
        assert status.is_mine(first.ts)
        assert status.is_mine(second.ts)
    assert run.statuses == [first.ts, second.ts]
    assert second.ts in status.artifacts.statuses


async def test_the_next_owner_continues_with_a_status_that_was_posted_again(show, contains, posts, slack, record):
    async with show() as (status, _):
        first = await contains("⚙️")
        slack.faults.next("chat.update", ErrorResponse("message_not_found"))
        status.on_event("thinking", {})
        second = await contains("⚙️ Thinking…")
    slack.workspace.delete(first.channel, first.ts, first.bot)
    async with show(replace(record, status_ts=first.ts, was_taken_over=True)) as (status, _):
        status.on_event("compacting", {})
        message = await contains("Summarizing")
        assert message.ts == second.ts
        assert posts() == [message]


@pytest.mark.parametrize("error", ["invalid_blocks", "msg_blocks_too_long"])
@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_a_status_whose_blocks_slack_refuses_is_plain_text(slack, show, contains, method, error):
    async with show() as (status, _):
        if method == "chat.update":
            await contains("⚙️")
        slack.faults.next(method, ErrorResponse(error))
        plan(status)
        message = await contains("▶ write")
    assert message.text.startswith("⚙️ ")
    assert not message.body.blocks
    assert "To do: 1 of 2 done" in message.text


async def test_the_to_do_list_and_the_calls_are_cards(show, contains):
    async with show(cards=True) as (status, _):
        plan(status)
        status.on_event("tool:start", TESTS)
        message = await contains("Running the tests")
    assert [block["type"] for block in message.body.blocks] == ["section", "plan", "plan", "actions"]


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_where_slack_refuses_cards_the_to_do_list_is_text(slack, show, contains, client, method):
    async with show(cards=True) as (status, _):
        if method == "chat.update":
            await contains("⚙️")
        slack.faults.next(method, ErrorResponse("invalid_blocks"))
        plan(status)
        message = await contains("▶ write")
    assert [block["type"] for block in message.body.blocks] == ["section", "section", "actions"]
    assert not client.takes_cards


async def test_a_status_that_may_not_be_posted_reports_the_conversation_as_closed(slack, show, posts):
    slack.faults.next("chat.postMessage", ErrorResponse("is_archived"))
    async with show() as (_, run):
        assert await run.closed == "is_archived"
    assert not posts()


async def test_a_failed_edit_is_repeated_without_a_new_event(slack, show, contains):
    async with show() as (status, _):
        await contains("⚙️")
        slack.faults.next("chat.update", RateLimited(0), times=31)
        status.on_event("thinking", {})
        await contains("⚙️ Thinking…")
    assert not slack.faults.pending("chat.update")


async def test_where_nothing_may_be_edited_a_status_is_posted_again_twice(slack, show, contains, posts):
    slack.workspace.rules.edit_window_s = -1
    async with show() as (status, run):
        await contains("⚙️ Working…")
        for event, words in (("thinking", "Thinking"), ("compacting", "Summarizing")):
            status.on_event(event, {})
            await contains(words)
        status.on_event("tool:start", TESTS)
        async with asyncio.timeout(3):
            await status._updating
        assert len(run.statuses) == 3
        assert [message.ts for message in posts()] == run.statuses[-1:]


async def test_a_status_that_may_not_be_deleted_becomes_done(slack, show, contains, posts, client):
    async with show():
        message = await contains("⚙️")
        slack.faults.next("chat.delete", ErrorResponse("cant_delete_message"))
        await remove_status(client, slack.channel("general").id, message.ts)
        (remaining,) = posts()
        assert remaining.text == "Done."
        assert not remaining.body.blocks


@pytest.mark.parametrize("fault", [ServerError(503), ServerError(200)], ids=["503", "error page"])
@pytest.mark.parametrize("method", ["reactions.add", "chat.postMessage", "chat.delete", "reactions.remove"])
async def test_a_gateway_error_leaves_the_answer_and_nothing_else_in_the_thread(chat, method, fault):
    chat.fail(method, fault)
    thread = await chat.start()
    await thread.status()
    await thread.run.answer("the answer")
    await thread.shows("the answer")


@pytest.mark.parametrize("fault", [ServerError(503), ServerError(200)], ids=["503", "error page"])
async def test_a_gateway_error_on_an_envelope_does_not_end_the_service(chat, fault):
    thread = await chat.start_shown()
    chat.fail("reactions.add", fault)
    await thread.inject("and the tests")
    await thread.run.answer("the answer")
    await thread.contains("the answer")
    await chat.start("@alpha still there?")


@pytest.mark.parametrize("method", ["chat.update", "chat.delete", "reactions.add", "reactions.remove"])
async def test_an_answer_is_posted_though_slack_refuses_the_status_and_the_reactions(chat, method):
    chat.fail(method, ErrorResponse("internal_error"), times=10)
    thread = await chat.start()
    await thread.run.progress("thinking", iteration=1)
    await thread.run.answer("the answer")
    await thread.contains("the answer")


async def test_a_run_without_a_status_message_answers(chat):
    chat.fail("chat.postMessage", ErrorResponse("invalid_arguments"))
    thread = await chat.start()
    await chat.slack.until(lambda _: not chat.slack.faults.pending("chat.postMessage"))
    await thread.run.answer("the answer")
    await thread.shows("the answer")


@pytest.mark.parametrize(
    ("posts", "lookups"),
    [([DropBeforeCall()] * 3 + [DropAfterCall()], []), ([DropAfterCall()], [ServerError(503)] * 4)],
    ids=["at the last attempt", "and its look-up fails"],
)
async def test_a_status_message_whose_post_is_in_doubt_is_removed_at_the_end(process, posts, lookups):
    async with process(calls_late_s=0.1) as chat:
        for fault in posts:
            chat.fail("chat.postMessage", fault)
        for fault in lookups:
            chat.fail("conversations.replies", fault)
        thread = await chat.start()
        await thread.status()
        await thread.run.answer("the answer")
        await thread.shows("the answer")


async def test_a_run_in_a_conversation_closed_to_the_bot_is_stopped(chat):
    thread = await chat.start()
    await thread.run.answer("so that Ana's name is known")
    await thread.shows("so that Ana's name is known")
    chat.fail("chat.postMessage", ErrorResponse("is_archived"))
    thread = await chat.start()
    await thread.run.stopped(True)
    await thread.run.answer("", status="cancelled")
    dm = await chat.ana.open_dm("alpha")
    assert len(await chat.slack.until(lambda ws: ws.messages(dm))) == 1


class Client:
    """A client whose `reactions.add` takes 15 s; the workspace has no agent sessions."""

    retry_until_done = staticmethod(SlackClient.retry_until_done)

    def __init__(self) -> None:
        self.done: list[str] = []

    async def react(self, channel: str, ts: str, name: str, slot: object, confirm: Any) -> None:
        await confirm()
        await asyncio.sleep(15)
        self.done.append("marked")

    async def unreact(self, *reaction: str) -> None:
        self.done.append("unmarked")

    async def post(self, *_: Any, **__: Any) -> str:
        return "2.0"

    async def update(self, *_: Any) -> None:
        pass

    async def delete(self, channel: str, ts: str, run: str = "") -> None:
        self.done.append(f"{ts} deleted")

    async def call(self, method: str, *_: Any) -> None:
        raise SlackCallFailed(method, "feature_disabled")


async def nothing(*_: object) -> None:
    pass


class ClientWithSessions(Client):
    """A client of a workspace that has agent sessions."""

    async def call(self, _method: str, arguments: Any, _slot: object) -> None:
        self.done.append(arguments()["status"])


def of_root() -> RunRecord:
    message = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
    return RunRecord("run", PendingMessage(message, "alpha", "look", message.id), was_waiting=False, newest_ts="1.0")


@in_virtual_time
async def test_a_run_of_two_hours_is_shown_as_processing_every_45_minutes_until_it_ends():
    client, lease = ClientWithSessions(), SimpleNamespace(claim=Claim(1), confirm=nothing, write=nothing)
    async with BackgroundTasks(client) as background:
        record = replace(of_root(), has_hourglass=False)
        async with RunStatus(background, lease, record, PERSONA, keep_ts=nothing, on_closed=print).shown():
            await asyncio.sleep(7200)
        assert client.done == ["processing"] * 3
        await asyncio.sleep(7200)
    assert client.done == ["processing"] * 3


@in_virtual_time
async def test_a_reaction_without_a_response_delays_no_run_and_is_removed_later():
    client = Client()
    record = of_root()
    lease = SimpleNamespace(claim=Claim(1), confirm=nothing, write=nothing)
    clock = asyncio.get_running_loop()
    async with BackgroundTasks(client) as background:
        status = RunStatus(background, lease, record, PERSONA, keep_ts=nothing, on_closed=print)
        cleanup = Cleanup(lease, background)
        async with status.shown():
            await asyncio.sleep(1)
            ends_at_s = clock.time()
        assert clock.time() - ends_at_s < 3
        await cleanup.end_run({}, (status.artifacts,))
        await cleanup.recent_done()
        assert clock.time() - ends_at_s < 5
        await cleanup.done(asyncio.Event())
    assert client.done == ["2.0 deleted", "marked", "unmarked"]
