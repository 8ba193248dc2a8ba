"""What people see of a run: the hourglass, the status message, and the texts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from connector.records.run_artifacts import RunArtifacts
from connector.runs.outbox import Outbox
from connector.runs.status.message import Status
from connector.slack_api.agent_sessions import PROCESSING, SUSPENDED, title_of
from connector.slack_api.best_effort import best_effort
from connector.slack_api.history import FoundPost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import Any

    from connector.protocols import ConversationLease, End, Persona
    from connector.records.run_record import RunRecord
    from connector.runs.background_tasks import BackgroundTasks
    from connector.runs.outbox import Record
    from connector.runs.post import Post
    from connector.runs.status.message import Keeper

# How long a run may wait at its end for a mark that Slack has not answered yet.
_MARKED_WITHIN_S = 2.0


class RunView:
    """The traces of one run in its thread. Showing them never holds the run up.

    A run that goes on after its process died goes on with the traces that it left.
    """

    def __init__(
        self, desk: BackgroundTasks, lease: ConversationLease, record: RunRecord, persona: Persona, keeper: Keeper
    ) -> None:
        self._desk = desk
        self._record = record
        self._place = record.first.message.place
        self._is_marked = record.is_marked
        self._lease = lease
        self._keeper = keeper
        before = FoundPost(desk.wire.history, self._place) if record.is_taken_up else None
        self._status = Status(desk.wire, lease, record, self, before, spacing_s=desk.options.status_interval_s)
        self._outbox = Outbox(desk.wire, lease, record, persona, before, on_closed=keeper.on_closed)
        self._is_suspended = False
        # Whether nothing is posted any more.
        self.is_silent = False
        self._said = 0

    @property
    def is_closed(self) -> bool:
        """Whether Slack does not let us write here (any more)."""
        return self._outbox.is_closed

    def is_status(self, ts: str) -> bool:
        """Whether this is the ts of a status message of this run, as far as Slack has told it."""
        return self._status.is_mine(ts)

    def hear(self, event: str, data: dict[str, Any]) -> None:
        """Take note of what the run is doing; the status message says so soon."""
        self._status.hear(event, data)

    def stop(self) -> None:
        """Take note that somebody has asked the run to stop."""
        self._status.stop()

    async def post(self, *posts: Post, run: Record | None = None, closed: Mapping[int, End] | None = None) -> None:
        """Post texts after those before them; when this returns, they are written down: see `Outbox.add`."""
        self._said += 1
        await self._outbox.add(*posts, run=run, closed=closed or {})

    async def posted(self) -> None:
        """Return once Slack has all that was said."""
        said = None
        while said != self._said:  # more may come in the moment in which the last one is there
            said = self._said
            await self._outbox.empty()

    def suspend(self) -> None:
        """Leave the traces where they are at the end: another process goes on with them."""
        self._is_suspended = True

    async def keep_status(self, ts: str) -> None:
        """Remember which message is the status."""
        await self._keeper.keep_status(ts)

    def on_closed(self, error: str) -> None:
        """Slack does not let us write in this conversation (any more), for a reason in its own word."""
        self._said += 1
        self._outbox.close(error)

    @property
    def traces(self) -> RunArtifacts:
        """What is to be taken away when the run is over."""
        record, first = self._record, self._record.first.message
        thread = self._place.team, self._place.thread_ts or ""
        return RunArtifacts(
            first.channel,
            first.ts,
            self._status.standing,
            self._is_marked,
            *thread,
            run_id=record.id,
            user=first.user,
            is_inherited=record.is_taken_up or self._status.is_in_doubt,
        )

    @asynccontextmanager
    async def posting(self) -> AsyncIterator[None]:
        """Post what is said, and at the end what is left to say.

        Where the body fails or is cancelled, the run is not over.
        """
        async with asyncio.TaskGroup() as tasks:
            posts = tasks.create_task(self._outbox.work())
            yield
            await self.posted()
            self.is_silent = True
            posts.cancel()

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show hourglass and status. Both stay at the end, as the run's traces."""
        async with asyncio.TaskGroup() as tasks:
            hourglass = self._desk.spawn(self._mark())
            self._status.begin(tasks)
            self._desk.native.show(self._place, PROCESSING, self._title)
            yield
            await self._status.end()
            self._desk.forgo_working(self._record.first.message)
            await asyncio.wait((hourglass,), timeout=_MARKED_WITHIN_S)
            await self._lease.confirm()
            if self._is_suspended:
                self._desk.native.show(self._place, SUSPENDED)
                await self._status.pause()

    @property
    def _title(self) -> str:
        """What the conversation is called, if it begins with this run."""
        first = self._record.first
        begins = first.message.ts == self._place.thread_ts and not self._record.is_taken_up
        return title_of(self._desk.names.readable(first.prompt)) if begins else ""

    async def _mark(self) -> None:
        if self._record.is_marked:
            await best_effort(self._put_hourglass())

    async def _put_hourglass(self) -> None:
        is_there = await self._desk.mark_working(self._record.first.message, self._lease.confirm)
        self._is_marked = is_there or self._record.is_taken_up
