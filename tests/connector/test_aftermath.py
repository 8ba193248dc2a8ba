"""What is done when a run is over, however long Slack is away; in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from slack_sdk.errors import SlackApiError
from virtual_time import in_virtual_time

from connector.conversations.cleanup import Cleanup
from connector.events import SlackMessage
from connector.protocols import Claim, InboxEntry, StateChanges
from connector.records.pending_cleanup import Notice, PendingCleanup
from connector.records.run_artifacts import RunArtifacts
from connector.runs.background_tasks import BackgroundTasks
from connector.slack_api.client import SlackClient
from connector.slack_api.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slack_sdk.web.async_client import AsyncWebClient

    from connector.protocols import ConversationLease


MESSAGE = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
TRACES = RunArtifacts("C1", "1.0", ("2.0",), is_marked=True, team="T1", thread_ts="1.0", run_id="run")
NOTICE = Notice(MESSAGE, "T1:C1:1.0:stopped", "🛑 Stopped by Ben.")
POST, DELETE, LOOK = "chat.postMessage", "chat.delete", "conversations.replies"


class _Answer(dict[str, Any]):
    """As the SDK hands on what Slack answers."""

    status_code = 200

    @property
    def data(self) -> dict[str, Any]:
        return dict(self)


@dataclass
class _Slack:
    """A Slack that says `error`, or does what it is asked to and has it in its `thread`."""

    error: str = ""
    thread: list[dict[str, Any]] = field(default_factory=lambda: [{"ts": "1.0"}])
    heard: list[tuple[float, str]] = field(default_factory=list)

    async def api_call(self, method: str, *, data: dict[str, Any]) -> _Answer:
        self.heard.append((round(asyncio.get_running_loop().time(), 3), method))
        if method.startswith("agents."):
            raise SlackApiError("refused", _Answer(ok=False, error="feature_disabled"))
        if self.error:
            raise SlackApiError("refused", _Answer(ok=False, error=self.error))
        if method == POST:
            self.thread.append({"ts": f"{len(self.thread) + 1}.0", "text": data["text"], "thread_ts": "1.0"})
            return _Answer(ok=True, ts=self.thread[-1]["ts"], message=self.thread[-1])
        return _Answer(ok=True, messages=list(self.thread))

    def called(self, method: str) -> list[float]:
        """When."""
        return [at_s for at_s, each in self.heard if each == method]

    @property
    def texts(self) -> list[str]:
        return [each["text"] for each in self.thread if "text" in each]


@dataclass
class _Lease:
    """A lease that holds, and what was written under it."""

    claim: Claim = field(default_factory=lambda: Claim(1))
    written: list[StateChanges] = field(default_factory=list)

    async def confirm(self) -> None:
        pass

    async def write(self, changes: StateChanges) -> None:
        self.written.append(changes)


@asynccontextmanager
async def conversation(slack: _Slack, lease: _Lease) -> AsyncIterator[Cleanup]:
    async with (
        RateLimiter("T1") as scheduler,
        BackgroundTasks(SlackClient(cast("AsyncWebClient", slack), scheduler)) as desk,
    ):
        yield Cleanup(cast("ConversationLease", lease), desk)


async def all_done(aftermath: Cleanup) -> None:
    await aftermath.done(asyncio.Event())


@in_virtual_time
async def test_what_a_run_leaves_is_written_down_in_one_step_with_its_end_and_forgotten_when_it_is_done():
    slack, lease = _Slack(), _Lease()
    async with conversation(slack, lease) as aftermath:
        await aftermath.end_run({1: ""}, artifacts=TRACES, notices=(NOTICE,), held=4)
        left = PendingCleanup((TRACES,), (NOTICE,))
        assert aftermath.leftovers == left
        await aftermath.recent_done()
        assert not aftermath.leftovers
        await aftermath.keep()
    assert lease.written == [StateChanges(run=left.written(), closed={1: ""}, held=4), StateChanges(run={})]
    assert slack.texts == ["🛑 Stopped by Ben."]


@pytest.mark.parametrize("left", [PendingCleanup(notices=(NOTICE,)), PendingCleanup((TRACES,))])
@in_virtual_time
async def test_slack_is_waited_for_however_long_it_is_away(left):
    slack, lease = _Slack("service_unavailable"), _Lease()
    async with conversation(slack, lease) as aftermath:
        await aftermath.end_run({}, notices=left.notices, artifacts=next(iter(left.artifacts), None))
        await asyncio.sleep(600)
        assert aftermath.leftovers == left
        slack.error = ""
        await all_done(aftermath)
        assert not aftermath.leftovers
    assert len(slack.texts) == len(left.notices)


@in_virtual_time
async def test_a_stop_word_is_answered_however_long_slack_is_away_and_its_entry_is_open_until_then():
    slack, lease = _Slack("service_unavailable"), _Lease()
    async with conversation(slack, lease) as aftermath:
        aftermath.answer(InboxEntry("stop", "stop", {}, 7), MESSAGE, "Nothing is running.")
        await asyncio.sleep(600)
        assert lease.written == []
        slack.error = ""
        await all_done(aftermath)
    assert slack.texts == ["Nothing is running."]
    assert lease.written == [StateChanges(closed={7: "done"})]


@in_virtual_time
async def test_what_slack_refuses_is_not_tried_for_ever():
    slack, lease = _Slack("channel_not_found"), _Lease()
    async with conversation(slack, lease) as aftermath:
        await aftermath.end_run({}, artifacts=TRACES, notices=(NOTICE,))
        aftermath.answer(InboxEntry("stop", "stop", {}, 7), MESSAGE, "Nothing is running.")
        aftermath.resume(PendingCleanup((replace(TRACES, first_ts="0.5"),), (replace(NOTICE, key="another"),)))
        await all_done(aftermath)
        assert not aftermath.leftovers
    assert lease.written[-1] == StateChanges(closed={7: "done"})


@pytest.mark.parametrize(
    "left", [PendingCleanup((TRACES,)), PendingCleanup(notices=(NOTICE,)), PendingCleanup((TRACES,), (NOTICE,))]
)
@in_virtual_time
async def test_what_was_taken_up_is_looked_at_once_more_when_no_call_of_a_dead_process_can_come_any_more(left):
    slack, lease = _Slack(), _Lease()
    async with conversation(slack, lease) as aftermath:
        aftermath.resume(left)
        await asyncio.sleep(14)
        before = len(slack.called(LOOK))
        assert aftermath.leftovers == left.inherited
        assert before == len(left.notices), "a notice is looked for before it is posted"
        await all_done(aftermath)
        assert slack.called(LOOK)[before:] == [15.0]
        assert not aftermath.leftovers
        await aftermath.keep()
    assert lease.written == [StateChanges(run={})]


@in_virtual_time
async def test_a_run_that_was_taken_up_and_works_for_long_is_looked_at_when_it_ends_and_nobody_waits_for_that():
    slack, lease = _Slack(), _Lease()
    async with conversation(slack, lease) as aftermath:
        await asyncio.sleep(5)
        await aftermath.end_run({}, artifacts=replace(TRACES, is_inherited=True))
        await aftermath.recent_done()
        assert asyncio.get_running_loop().time() == 5.0
        assert aftermath.leftovers
        await asyncio.sleep(60)
        await aftermath.end_run({}, artifacts=replace(TRACES, is_inherited=True))
        await all_done(aftermath)
    assert slack.called(LOOK) == [15.0, 65.0]


@in_virtual_time
async def test_who_is_to_end_does_not_wait_for_that():
    slack, lease = _Slack(), _Lease()
    async with conversation(slack, lease) as aftermath:
        aftermath.resume(PendingCleanup((TRACES,)))
        await asyncio.sleep(1)
    assert asyncio.get_running_loop().time() == 1.0


@in_virtual_time
async def test_the_entry_of_a_reply_that_another_process_may_have_posted_stays_until_none_can_come_any_more():
    stop = InboxEntry("stop", "stop", {}, 7)
    slack, lease = _Slack(), _Lease(Claim(2, entries=(stop,)))
    async with conversation(slack, lease) as aftermath:
        aftermath.answer(stop, MESSAGE, "Nothing is running.")
        await asyncio.sleep(14)
        assert slack.texts == ["Nothing is running."]
        assert lease.written == []
        await all_done(aftermath)
    assert lease.written == [StateChanges(closed={7: "done"})]


def test_leftovers_are_read_as_they_were_written():
    left = PendingCleanup((TRACES,), (NOTICE,))
    assert PendingCleanup.read(left.written()) == left
    assert PendingCleanup.read({}) == PendingCleanup()
