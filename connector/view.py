"""What people see of a run: the hourglass, the status message, and the texts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from connector.best_effort import best_effort
from connector.outbound.answers import posts_of
from connector.outbound.links import escape
from connector.outbound.native import PROCESSING, SUSPENDED, title_of
from connector.outbound.outbox import Outbox
from connector.status import STATUS_KEY, Status
from connector.traces import Traces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from connector.desk import Desk
    from connector.protocols import Lease, Persona
    from connector.run_record import RunRecord
    from connector.status import Keeper

__all__ = ["STATUS_KEY", "View", "best_effort"]

# How long a run may wait at its end for a mark that Slack has not answered yet.
_MARKED_WITHIN_S = 2.0


class View:
    """The traces of one run in its thread. Showing them never holds the run up.

    A run that goes on after its process died goes on with the traces that it left.
    """

    def __init__(self, desk: Desk, lease: Lease, record: RunRecord, persona: Persona, keeper: Keeper) -> None:
        self._desk = desk
        self._record = record
        self._place = record.first.message.place
        self._goes_on = lease.claim.run is not None and lease.claim.run.get("id") == record.id
        self._is_marked = self._goes_on
        self._lease = lease
        self._status = Status(desk.wire, lease, record, keeper)
        self._outbox = Outbox(desk.wire, lease, self._place, record.id, persona, on_closed=keeper.on_closed)
        self._is_suspended = False

    def is_status(self, ts: str) -> bool:
        """Whether this is the ts of a status message of this run, as far as Slack has told it."""
        return self._status.is_mine(ts)

    def hear(self, event: str, data: dict[str, Any]) -> None:
        """Take note of what the run is doing; the status message says so soon."""
        self._status.hear(event, data)

    def stop(self) -> None:
        """Take note that somebody has asked the run to stop."""
        self._status.stop()

    def say(self, part: str, markdown: str) -> bool:
        """Post a text of the agent under its persona, after those before it; whether there was anything to see."""
        texts, file = posts_of(markdown)
        if texts:
            self._outbox.add(part, texts, by_agent=True, file=file)
        return bool(texts)

    def notice(self, part: str, text: str) -> None:
        """Post a sentence of the service's own, after the texts before it."""
        self._outbox.add(part, (escape(text),), by_agent=False)

    async def posted(self) -> None:
        """Return once Slack has all that was said."""
        await self._outbox.empty()

    def suspend(self) -> None:
        """Leave the traces where they are at the end: another process goes on with them."""
        self._is_suspended = True

    @property
    def traces(self) -> Traces:
        """What is to be taken away when the run is over."""
        first = self._record.first.message
        thread = self._place.team, self._place.thread_ts or ""
        return Traces(first.channel, first.ts, self._status.standing, self._is_marked, *thread)

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show hourglass and status; at the end post what is left to say. Both stay, as the run's traces.

        Where the body fails or is cancelled, the run is not over.
        """
        async with asyncio.TaskGroup() as tasks:
            hourglass = self._desk.spawn(self._mark())
            self._status.begin(tasks)
            posts = tasks.create_task(self._outbox.work())
            self._desk.native.show(self._place, PROCESSING, self._title)
            yield
            await self.posted()
            posts.cancel()
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
        begins = first.message.ts == self._place.thread_ts and not self._goes_on
        return title_of(self._desk.names.readable(first.prompt)) if begins else ""

    async def _mark(self) -> None:
        self._is_marked = True  # whatever comes of it, it may be there
        await best_effort(self._put_hourglass())

    async def _put_hourglass(self) -> None:
        is_there = await self._desk.mark_working(self._record.first.message, self._lease.confirm)
        self._is_marked = is_there or self._goes_on
