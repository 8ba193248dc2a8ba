"""After a takeover, undo Slack calls of the dead process that arrive late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from connector.records.run_artifacts import RunArtifacts
from connector.runs.background_tasks import HOURGLASS
from connector.runs.status.message import STATUS_KEY, remove_status
from connector.slack_api import uploads
from connector.slack_api.client import best_effort
from connector.slack_api.errors import NO_THREAD, SlackCallFailed
from connector.slack_api.history import key_of
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from connector.events import ThreadAddress
    from connector.records.pending_cleanup import Notice
    from connector.runs.background_tasks import BackgroundTasks

    Message = dict[str, Any]


class LateCallCleanup:
    """Searches a conversation once late calls of earlier owners can no longer arrive, and removes their effects.

    Deletes status messages of finished runs, and all but the earliest copy of duplicate posts. The rule is
    deterministic, so that concurrent cleanups agree.
    """

    def __init__(self, background: BackgroundTasks) -> None:
        """Start the waiting period, `background.calls_late_s`."""
        self._background = background
        self._not_before_s = asyncio.get_running_loop().time() + background.calls_late_s
        self._waiting: list[RunArtifacts | Notice] = []
        self._lock = asyncio.Lock()

    async def finished(self, item: RunArtifacts | Notice) -> None:
        """Return when late calls for this item are undone. Items that wait at the same time share one search."""
        self._waiting.append(item)
        await self._background.sleep_until(self._not_before_s)
        async with self._lock:
            if item in self._waiting:
                items, self._waiting = self._waiting, []
                await best_effort(self._undo(items[0].place, items))

    async def _undo(self, place: ThreadAddress, items: Sequence[RunArtifacts | Notice]) -> None:
        retry_until_done = self._background.client.retry_until_done
        messages = await retry_until_done(partial(self._messages, place))
        for undo in self._undoing(place, items, messages):
            await best_effort(retry_until_done(undo))
        if (shown := self._background.agent_sessions.show_again(place)) is not None:
            await asyncio.wait((shown,))

    async def _messages(self, place: ThreadAddress) -> list[Message]:
        """Return the messages of the thread; if its root is deleted, those of the channel: Slack posts there then."""
        history, slot = self._background.client.history, CallSlot(Priority.CLEANUP, place.conversation_id)
        try:
            return [message async for message in history.messages(place, slot)]
        except SlackCallFailed as e:
            if e.error != NO_THREAD:
                raise
        return [message async for message in history.messages(replace(place, thread_ts=None), slot)]

    def _undoing(
        self, place: ThreadAddress, items: Iterable[RunArtifacts | Notice], messages: Sequence[Message]
    ) -> Iterable[Callable[[], Awaitable[None]]]:
        """Yield a call for each late status message, duplicate post, duplicate file and leftover hourglass."""
        client = self._background.client
        for item in items:
            posts = [each for each in messages if item.has_posted(key_of(each))]
            for each in posts:
                if STATUS_KEY in key_of(each):
                    yield partial(remove_status, client, place.channel, each["ts"])
                elif _is_misplaced(each, place) or any(_is_duplicate(each, other) for other in posts):
                    yield partial(client.delete, place.channel, each["ts"])
            for file_id in uploads.shared_again(messages, _shared_by(posts)):
                yield partial(uploads.delete, client, file_id)
            if isinstance(item, RunArtifacts) and _may_be_marked(item, messages):
                yield partial(self._background.unmark, item)


def _shared_by(posts: Iterable[Message]) -> set[str]:
    """Return the names of the files that belong to these posts: the post's key without its number."""
    return {uploads.file_name(key_of(each).rpartition(":")[0]) for each in posts}


def _is_misplaced(post: Message, place: ThreadAddress) -> bool:
    return place.thread_ts is not None and "thread_ts" not in post


def _is_duplicate(post: Message, other: Message) -> bool:
    return key_of(post) == key_of(other) and float(post["ts"]) > float(other["ts"])


def _may_be_marked(artifacts: RunArtifacts, messages: Iterable[Message]) -> bool:
    """Return whether the run's first message may have an hourglass; if it is not found, rely on the record."""
    first = next((each for each in messages if each["ts"] == artifacts.first_ts), None)
    if first is None:
        return artifacts.has_hourglass
    return any(each.get("name") == HOURGLASS for each in first.get("reactions") or ())
