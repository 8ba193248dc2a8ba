"""The visible parts of a run: hourglass, status message and posts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from connector.records.run_artifacts import RunArtifacts
from connector.runs.outbox import Outbox
from connector.runs.status.message import StatusMessage
from connector.slack_api.agent_sessions import PROCESSING, SUSPENDED, title_of
from connector.slack_api.client import best_effort
from connector.slack_api.history import FoundPost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from typing import Any

    from connector.protocols import ConversationLease, End, Persona
    from connector.records.run_record import RunRecord
    from connector.runs.background_tasks import BackgroundTasks
    from connector.runs.outbox import Record
    from connector.runs.post import Post
    from connector.runs.status.message import StatusOwner

# How long a finished run waits for the call that adds its hourglass.
_MARKED_WITHIN_S = 2.0


class RunView:
    """The hourglass, status message and posts of one run. Updating them never delays the run.

    A resumed run reuses those of the earlier owner.
    """

    def __init__(
        self,
        background: BackgroundTasks,
        lease: ConversationLease,
        record: RunRecord,
        persona: Persona,
        owner: StatusOwner,
    ) -> None:
        self._background = background
        self._record = record
        self._place = record.first.message.place
        self._has_hourglass = record.has_hourglass
        self._lease = lease
        self._owner = owner
        existing = FoundPost(background.client.history, self._place) if record.was_taken_over else None
        self._status = StatusMessage(
            background.client, lease, record, self, existing, spacing_s=background.options.status_interval_s
        )
        self._outbox = Outbox(background.client, lease, record, persona, existing, on_closed=owner.on_closed)
        self._is_suspended = False
        # All posts are delivered, and no more are accepted.
        self.is_silent = False
        self._added = 0

    @property
    def is_closed(self) -> bool:
        """Whether Slack no longer accepts posts in the conversation."""
        return self._outbox.is_closed

    def is_status(self, ts: str) -> bool:
        """Return whether this is the known ts of a status message of this run."""
        return self._status.is_mine(ts)

    def on_event(self, event: str, data: dict[str, Any]) -> None:
        """Update the status message for a progress event."""
        self._status.on_event(event, data)

    def stop(self) -> None:
        """Show that a person asked the run to stop."""
        self._status.stop()

    async def post(self, *posts: Post, run: Record | None = None, closed: Mapping[int, End] | None = None) -> None:
        """Add posts to the outbox; they are stored on return (see `Outbox.add`)."""
        self._added += 1
        await self._outbox.add(*posts, run=run, closed=closed or {})

    async def posted(self) -> None:
        """Wait until the outbox is empty."""
        added = None
        while added != self._added:  # posts may be added while this waits
            added = self._added
            await self._outbox.empty()

    def suspend(self) -> None:
        """Show at the end that the run is suspended; another process reuses status message and hourglass."""
        self._is_suspended = True

    async def keep_status(self, ts: str) -> None:
        """Store the ts of the status message."""
        await self._owner.keep_status(ts)

    def on_closed(self, error: str) -> None:
        """Close the outbox: Slack no longer accepts posts in the conversation. `error` is Slack's error code."""
        self._added += 1
        self._outbox.close(error)

    @property
    def artifacts(self) -> RunArtifacts:
        """The artifacts to remove when the run is over."""
        record, first = self._record, self._record.first.message
        thread = self._place.team, self._place.thread_ts or ""
        return RunArtifacts(
            first.channel,
            first.ts,
            self._status.remaining,
            self._has_hourglass,
            *thread,
            run_id=record.id,
            user=first.user,
            is_inherited=record.was_taken_over or self._status.is_in_doubt,
        )

    @asynccontextmanager
    async def posting(self) -> AsyncIterator[None]:
        """Deliver posts while the body runs, and the remaining ones at its end.

        If the body fails or is cancelled, the remaining posts stay in the outbox.
        """
        async with asyncio.TaskGroup() as tasks:
            posts = tasks.create_task(self._outbox.work())
            yield
            await self.posted()
            self.is_silent = True
            posts.cancel()

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show hourglass and status message while the body runs. Cleanup removes them later."""
        async with asyncio.TaskGroup() as tasks:
            hourglass = self._background.spawn(self._mark())
            self._status.begin(tasks)
            self._background.agent_sessions.show(self._place, PROCESSING, self._title)
            yield
            await self._status.end()
            self._background.cancel_hourglass(self._record.first.message)
            await asyncio.wait((hourglass,), timeout=_MARKED_WITHIN_S)
            await self._lease.confirm()
            if self._is_suspended:
                self._background.agent_sessions.show(self._place, SUSPENDED)
                await self._status.pause()

    @property
    def _title(self) -> str:
        """The title of the conversation, if this run begins it; else blank."""
        first = self._record.first
        begins = first.message.ts == self._place.thread_ts and not self._record.was_taken_over
        return title_of(self._background.users.with_names(first.prompt)) if begins else ""

    async def _mark(self) -> None:
        if self._record.has_hourglass:
            await best_effort(self._put_hourglass())

    async def _put_hourglass(self) -> None:
        is_there = await self._background.mark_working(self._record.first.message, self._lease.confirm)
        self._has_hourglass = is_there or self._record.was_taken_over
