"""Cleanup after runs: remove their status messages and reactions, and post notices, while later runs proceed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from connector.conversations.late_calls import LateCallCleanup
from connector.protocols import StateChanges
from connector.records.pending_cleanup import Notice, PendingCleanup
from connector.records.run_artifacts import RunArtifacts
from connector.slack_api.agent_sessions import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from connector.events import SlackMessage
    from connector.protocols import ConversationLease, End, InboxEntry
    from connector.runs.background_tasks import BackgroundTasks

# How long the next run waits for the cleanup of the one before it.
_RECENT_WITHIN_S = 2.0


class Cleanup:
    """Removes run artifacts and posts notices in the background.

    Pending cleanup is stored with the lease, so that the next owner can finish it.
    """

    def __init__(self, lease: ConversationLease, background: BackgroundTasks) -> None:
        self._lease = lease
        self._background = background
        self._pending: list[RunArtifacts | Notice] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._late_calls = LateCallCleanup(background)
        self._recent: set[asyncio.Task[None]] = set()
        self._catch_ups: set[asyncio.Task[None]] = set()
        self._is_kept = False

    def is_done(self, *, with_catch_ups: bool = True) -> bool:
        return not (self._tasks if with_catch_ups else self._tasks - self._catch_ups)

    @property
    def pending(self) -> PendingCleanup:
        """The pending cleanup."""
        artifacts = tuple(each for each in self._pending if isinstance(each, RunArtifacts))
        return PendingCleanup(artifacts, tuple(each for each in self._pending if isinstance(each, Notice)))

    def resume(self, pending: PendingCleanup) -> None:
        """Continue the cleanup of another process."""
        self._is_kept = self._is_kept or bool(pending)
        inherited = pending.inherited
        new: list[RunArtifacts | Notice] = [*inherited.artifacts, *inherited.notices]
        self._pending += new
        self._begin(new)

    def answer(self, entry: InboxEntry, message: SlackMessage, text: str) -> None:
        """Answer a message, and close its entry once Slack has accepted or rejected the answer."""
        self._spawn(self._answer(entry, message, text))

    def catch_up(self, entry: InboxEntry, work: Callable[[], Awaitable[None]]) -> None:
        """Run a catch-up, then close its entry. If it is cancelled or the process ends, the next owner repeats it."""
        task = self._background.catch_up(self._close_after(entry, work))
        self._keep(task)
        self._catch_ups.add(task)
        task.add_done_callback(self._catch_ups.discard)

    async def cancel_catch_ups(self) -> None:
        """Cancel unfinished catch-ups; the next owner repeats them."""
        tasks = tuple(self._catch_ups)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def keep(self) -> None:
        """Store the pending cleanup. No run may be active or begin during the call."""
        if self._pending or self._is_kept:
            await self.end_run({})

    async def end_run(
        self,
        closed: Mapping[int, End],
        *,
        artifacts: RunArtifacts | None = None,
        notices: Iterable[Notice] = (),
        held_seq: int | None = None,
    ) -> None:
        """Store in one step that no run is active and which cleanup is pending, then start the cleanup.

        `closed` and `held_seq` as in `StateChanges`.
        """
        new: list[RunArtifacts | Notice] = [*notices] if artifacts is None else [artifacts, *notices]
        self._pending += new
        self._is_kept = bool(self._pending)
        await self._lease.write(StateChanges(run=self.pending.to_dict(), closed=closed, held_seq=held_seq))
        self._begin(new)

    async def recent_done(self) -> None:
        """Wait for the cleanup started last, for at most `_RECENT_WITHIN_S` seconds."""
        if self._recent:
            await asyncio.wait(self._recent, timeout=_RECENT_WITHIN_S)

    async def done(self, news: asyncio.Event, *, with_catch_ups: bool = True) -> None:
        """Return when all cleanup is done, or when `news` is set."""
        waiting = asyncio.create_task(news.wait())
        try:
            while not self.is_done(with_catch_ups=with_catch_ups) and not waiting.done():
                await asyncio.wait({waiting, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})

    def _begin(self, item: Iterable[RunArtifacts | Notice]) -> None:
        self._recent = {self._spawn(self._do(each)) for each in item}

    def _do(self, item: RunArtifacts | Notice) -> Coroutine[Any, Any, None]:
        if isinstance(item, Notice):
            return self._post(item)
        # Report the end now: a run that begins later reports its own state.
        return self._remove(item, self._background.agent_sessions.show(item.place, ACTIVE))

    async def _remove(self, artifacts: RunArtifacts, shown: asyncio.Task[None] | None) -> None:
        await self._background.remove_artifacts(artifacts)
        if shown is not None:
            await asyncio.wait((shown,))
        self._end(artifacts)

    async def _post(self, notice: Notice) -> None:
        await self._background.post_notice(notice, self._lease.confirm)
        self._end(notice)

    def _end(self, item: RunArtifacts | Notice) -> None:
        """Finish an item, or wait for late calls of the process that it was inherited from."""
        if item.is_inherited:
            self._spawn(self._await_late_calls(item))
        else:
            self._pending.remove(item)

    async def _await_late_calls(self, item: RunArtifacts | Notice) -> None:
        await self._late_calls.finished(item)
        self._pending.remove(item)

    async def _answer(self, entry: InboxEntry, message: SlackMessage, text: str) -> None:
        notice = Notice(message, f"{message.id}:reply", text, is_inherited=self._is_inherited(entry))
        await self._background.post_notice(notice, self._lease.confirm)
        if notice.is_inherited:
            await self._late_calls.finished(notice)
        await self._lease.write(StateChanges(closed={entry.seq: "done"}))

    async def _close_after(self, entry: InboxEntry, work: Callable[[], Awaitable[None]]) -> None:
        await work()
        self._catch_ups -= {asyncio.current_task()}  # it can no longer be cancelled
        await self._lease.write(StateChanges(closed={entry.seq: "done"}))

    def _is_inherited(self, entry: InboxEntry) -> bool:
        """Return whether an earlier owner may have processed the entry."""
        return any(entry.seq == each.seq for each in self._lease.claim.entries)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._keep(self._background.spawn(work))

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
