"""The status message by itself, edited as often as anything changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from connector.events import SlackMessage
from connector.protocols import Claim
from connector.records.inbox import PendingMessage
from connector.records.run_record import RunRecord
from connector.runs.status.message import Status, remove_status
from connector.slack_api.client import SlackClient
from connector.slack_api.history import FoundPost
from connector.slack_api.rate_limiter import RateLimiter
from local_slack import LocalSlack, RateLimits, Refuses

TODO = {"items": [{"text": "look", "status": "done"}, {"text": "write", "status": "in_progress"}]}


@dataclass
class Kept:
    """What the lease and the keeper of a run would be told."""

    claim: Claim = field(default_factory=lambda: Claim(1))
    statuses: list[str] = field(default_factory=list)
    closed: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def confirm(self) -> None:
        await asyncio.sleep(0)

    async def keep_status(self, ts: str) -> None:
        self.statuses.append(ts)

    def on_closed(self, error: str) -> None:
        self.closed.set_result(error)


@dataclass
class Shown:
    slack: LocalSlack
    status: Status
    kept: Kept
    record: RunRecord
    wire: SlackClient

    def messages(self):
        first = self.record.first.message
        thread = self.slack.workspace.thread(first.channel, first.ts)
        return [message for message in thread if message.by_bot]

    async def until(self, text: str):
        """The status message that has this text in it or in its blocks."""
        await self.slack.until(lambda _: any(text in seen(message) for message in self.messages()))
        return next(message for message in self.messages() if text in seen(message))


def seen(message) -> str:
    return f"{message.text} {message.body.blocks}"


async def begun(slack: LocalSlack) -> RunRecord:
    root = await slack.as_person("ana").say("general", "look")
    message = SlackMessage("T0LOCAL", slack.channel("general").id, root, None, "U0ANA", "look", (), direct=False)
    first = PendingMessage(message, "alpha", "look", message.id)
    return RunRecord.begun_with(first, was_waiting=False, newest_ts=root)


@pytest.fixture
def show(slack: LocalSlack):
    @asynccontextmanager
    async def show(taken_up: RunRecord | None = None) -> AsyncIterator[Shown]:
        record = taken_up or await begun(slack)
        place = record.first.message.place
        async with aiohttp.ClientSession() as http, RateLimiter("T", scale=100) as scheduler:
            client = AsyncWebClient(slack.bot_token, base_url=slack.api_url, session=http, retry_handlers=[])
            kept = Kept()
            wire = SlackClient(client, scheduler)
            before = FoundPost(wire.history, place) if taken_up else None
            status = Status(wire, kept, record, kept, before, spacing_s=0.01)
            async with asyncio.TaskGroup() as tasks:
                status.begin(tasks)
                yield Shown(slack, status, kept, record, wire)
                await status.end()

    return show


async def test_the_status_says_what_is_done_what_is_to_do_and_has_a_button_to_stop(show):
    async with show() as shown:
        shown.status.on_event("thinking", {})
        shown.status.on_event("tool:start", {"tool": "todo", "id": "1", "label": "Planning", "args": TODO})
        shown.status.on_event("tool:end", {"tool": "todo", "id": "1", "success": True})
        shown.status.on_event("injection:applied", {"ids": ["T:C:1", "T:C:2"]})
        shown.status.on_event("tool:start", {"tool": "bash", "id": "2", "label": "Running the tests", "args": {}})
        status = await shown.until("Running the tests")
    phrase, todo, account, actions = status.body.blocks
    assert phrase["text"]["text"] == status.text == "⚙️ Incorporating your input… Running the tests…"
    assert todo["text"]["text"] == "*To do: 1 of 2 done*\n☑ look\n▶ write"
    assert account["elements"][0]["text"] == "1 step done · 2 messages read while working"
    (button,) = actions["elements"]
    assert button["action_id"] == "stop"
    assert button["text"]["text"] == "Stop"


async def test_many_events_at_once_make_one_edit_that_shows_the_last_one(show):
    async with show() as shown:
        await shown.until("⚙️")
        for number in range(20):
            shown.status.on_event(
                "tool:start", {"tool": "bash", "id": str(number), "label": f"Step {number}", "args": {}}
            )
            shown.status.on_event("tool:end", {"tool": "bash", "id": str(number), "success": True})
        shown.status.on_event("compacting", {})
        await shown.until("Summarizing")
    assert sum(entry.get("method") == "chat.update" for entry in shown.slack.record) == 1


async def test_after_a_stop_the_status_says_so_and_offers_to_stop_now(show):
    async with show() as shown:
        shown.status.on_event("tool:start", {"tool": "bash", "id": "2", "label": "Running the tests", "args": {}})
        await shown.until("Running")
        shown.status.stop()
        status = await shown.until("⚙️ Stopping… Running the tests…")
        assert status.body.blocks[-1]["elements"][0]["text"]["text"] == "Stop now"


@pytest.mark.parametrize("error", ["cant_update_message", "edit_window_closed", "message_not_found"])
async def test_a_status_that_cannot_be_edited_any_more_is_posted_anew(show, error):
    async with show() as shown:
        first = await shown.until("⚙️")
        shown.slack.faults.next("chat.update", Refuses(error))
        shown.status.on_event("thinking", {})
        second = await shown.until("⚙️ Thinking…")
        assert second.ts != first.ts
        await shown.slack.until(lambda _: error == "message_not_found" or len(shown.messages()) == 1)
        shown.status.on_event("compacting", {})
        assert (await shown.until("Summarizing")).ts == second.ts, "once for each loss"
        assert shown.status.is_mine(first.ts)
        assert shown.status.is_mine(second.ts)
    assert shown.kept.statuses == [first.ts, second.ts]
    assert second.ts in shown.status.remaining


async def test_a_status_that_was_posted_anew_when_its_process_died_is_gone_on_with(show):
    async with show() as shown:
        first = await shown.until("⚙️")
        shown.slack.faults.next("chat.update", Refuses("message_not_found"))
        shown.status.on_event("thinking", {})
        second = await shown.until("⚙️ Thinking…")
    shown.slack.workspace.delete(first.channel, first.ts, first.bot)
    async with show(replace(shown.record, status_ts=first.ts)) as again:
        again.status.on_event("compacting", {})
        assert (await again.until("Summarizing")).ts == second.ts
        assert again.messages() == [await again.until("Summarizing")]


@pytest.mark.parametrize("error", ["invalid_blocks", "msg_blocks_too_long"])
@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_a_status_whose_blocks_slack_does_not_take_is_plain_text(slack, show, method, error):
    async with show() as shown:
        if method == "chat.update":
            await shown.until("⚙️")
        slack.faults.next(method, Refuses(error))
        shown.status.on_event("tool:start", {"tool": "todo", "id": "1", "label": "Planning", "args": TODO})
        shown.status.on_event("tool:end", {"tool": "todo", "id": "1", "success": True})
        status = await shown.until("▶ write")
    assert status.text.startswith("⚙️ ")
    assert not status.body.blocks
    assert "1 step done" in status.text


async def test_a_status_that_may_not_be_posted_here_says_that_the_conversation_is_closed(slack, show):
    slack.faults.next("chat.postMessage", Refuses("is_archived"))
    async with show() as shown:
        assert await shown.kept.closed == "is_archived"
    assert not shown.messages()


async def test_an_edit_that_failed_is_made_up_for_without_any_news(show):
    async with show() as shown:
        await shown.until("⚙️")
        shown.slack.faults.next("chat.update", RateLimits(0), times=31)
        shown.status.on_event("thinking", {})
        await shown.until("⚙️ Thinking…")
    assert not shown.slack.faults.pending("chat.update")


async def test_where_nothing_may_be_edited_a_status_is_posted_anew_twice_and_then_left(slack, show):
    slack.workspace.rules.edit_window_s = -1
    async with show() as shown:
        await shown.until("⚙️ Working…")
        for event, words in (("thinking", "Thinking"), ("compacting", "Summarizing")):
            shown.status.on_event(event, {})
            await shown.until(words)
        shown.status.on_event("tool:start", {"tool": "bash", "id": "1", "label": "Running the tests", "args": {}})
        assert shown.status._updating is not None
        async with asyncio.timeout(3):
            await shown.status._updating
        assert len(shown.kept.statuses) == 3
        assert [message.ts for message in shown.messages()] == shown.kept.statuses[-1:]


async def test_a_status_that_may_not_be_deleted_says_that_it_is_over(slack, show):
    async with show() as shown:
        status = await shown.until("⚙️")
        slack.faults.next("chat.delete", Refuses("cant_delete_message"))
        await remove_status(shown.wire, slack.channel("general").id, status.ts)
        (left,) = shown.messages()
        assert left.text == "Done."
        assert not left.body.blocks
