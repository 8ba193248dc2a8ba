"""What is still to be done in a conversation when its runs are over; the next one does not wait for it."""

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

# How long the next run may wait for the traces of the one before it to go.
_TIDY_WITHIN_S = 2.0


class Cleanup:
    """Takes traces away, and says what is still to be said, while the conversation goes on.

    What is not done yet is kept with the lease, for whoever comes after this process.
    """

    def __init__(self, lease: ConversationLease, desk: BackgroundTasks) -> None:
        self._lease = lease
        self._desk = desk
        self._left: list[RunArtifacts | Notice] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep = LateCallCleanup(desk)
        self._begun_last: set[asyncio.Task[None]] = set()
        self._catch_ups: set[asyncio.Task[None]] = set()
        self._is_kept = False

    def is_done(self, *, with_catch_ups: bool = True) -> bool:
        return not (self._tasks if with_catch_ups else self._tasks - self._catch_ups)

    @property
    def leftovers(self) -> PendingCleanup:
        """What is not done yet."""
        traces = tuple(each for each in self._left if isinstance(each, RunArtifacts))
        return PendingCleanup(traces, tuple(each for each in self._left if isinstance(each, Notice)))

    def go_on(self, leftovers: PendingCleanup) -> None:
        """Do what another process had begun to."""
        self._is_kept = self._is_kept or bool(leftovers)
        inherited = leftovers.inherited
        new: list[RunArtifacts | Notice] = [*inherited.traces, *inherited.notices]
        self._left += new
        self._begin(new)

    def tell(self, entry: InboxEntry, message: SlackMessage, text: str) -> None:
        """Answer a message; its entry is closed when Slack has the answer, or refuses it."""
        self._beside(self._tell(entry, message, text))

    def catch_up(self, entry: InboxEntry, work: Callable[[], Awaitable[None]]) -> None:
        """Close an entry when this is done; if it is cancelled, or the process ends, the next owner repeats it."""
        task = self._desk.catch_up(self._close_after(entry, work))
        self._keep(task)
        self._catch_ups.add(task)
        task.add_done_callback(self._catch_ups.discard)

    async def cancel_catch_ups(self) -> None:
        """Leave the open catch-ups to the next owner."""
        tasks = tuple(self._catch_ups)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def keep(self) -> None:
        """Keep what is not done yet. No run may be on, or begin meanwhile."""
        if self._left or self._is_kept:
            await self.end_run({})

    async def end_run(
        self,
        closed: Mapping[int, End],
        *,
        traces: RunArtifacts | None = None,
        notices: Iterable[Notice] = (),
        held: int | None = None,
    ) -> None:
        """Write down that no run is on any more, and what it leaves to be done, in one step; then begin with that.

        `closed` and `held` as in `StateChanges`.
        """
        new: list[RunArtifacts | Notice] = [*notices] if traces is None else [traces, *notices]
        self._left += new
        self._is_kept = bool(self._left)
        await self._lease.write(StateChanges(run=self.leftovers.written(), closed=closed, held=held))
        self._begin(new)

    async def tidied(self) -> None:
        """Return when what was begun last is done, or when that takes long."""
        if self._begun_last:
            await asyncio.wait(self._begun_last, timeout=_TIDY_WITHIN_S)

    async def done(self, news: asyncio.Event, *, with_catch_ups: bool = True) -> None:
        """Return when all is done, with the catch-ups or without, or there are news."""
        waiting = asyncio.create_task(news.wait())
        try:
            while not self.is_done(with_catch_ups=with_catch_ups) and not waiting.done():
                await asyncio.wait({waiting, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})

    def _begin(self, left: Iterable[RunArtifacts | Notice]) -> None:
        self._begun_last = {self._beside(self._do(each)) for each in left}

    def _do(self, left: RunArtifacts | Notice) -> Coroutine[Any, Any, None]:
        if isinstance(left, Notice):
            return self._say(left)
        # Said at once: a run that begins meanwhile says otherwise.
        return self._tidy(left, self._desk.native.show(left.place, ACTIVE))

    async def _tidy(self, traces: RunArtifacts, told: asyncio.Task[None] | None) -> None:
        await self._desk.take_away(traces)
        if told is not None:
            await asyncio.wait((told,))
        self._end(traces)

    async def _say(self, notice: Notice) -> None:
        await self._desk.say(notice, self._lease.confirm)
        self._end(notice)

    def _end(self, left: RunArtifacts | Notice) -> None:
        """This process has done what is to be done; what one before it has begun may still come."""
        if left.is_inherited:
            self._beside(self._sweep_up(left))
        else:
            self._left.remove(left)

    async def _sweep_up(self, left: RunArtifacts | Notice) -> None:
        await self._sweep.over(left)
        self._left.remove(left)

    async def _tell(self, entry: InboxEntry, message: SlackMessage, text: str) -> None:
        notice = Notice(message, f"{message.id}:reply", text, is_inherited=self._is_inherited(entry))
        await self._desk.say(notice, self._lease.confirm)
        if notice.is_inherited:
            await self._sweep.over(notice)
        await self._lease.write(StateChanges(closed={entry.seq: "done"}))

    async def _close_after(self, entry: InboxEntry, work: Callable[[], Awaitable[None]]) -> None:
        await work()
        self._catch_ups -= {asyncio.current_task()}  # it is not cancelled any more
        await self._lease.write(StateChanges(closed={entry.seq: "done"}))

    def _is_inherited(self, entry: InboxEntry) -> bool:
        """Whether another process may have acted on an entry."""
        return any(entry.seq == each.seq for each in self._lease.claim.entries)

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._keep(self._desk.spawn(work))

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
