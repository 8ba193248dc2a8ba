"""What is still to be done in a conversation when its runs are over; the next one does not wait for it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from connector.outbound.native import ACTIVE
from connector.protocols import Changes
from connector.traces import Traces

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from connector.desk import Desk
    from connector.messages import Message
    from connector.protocols import End, Entry, Lease

# How long the next run may wait for the traces of the one before it to go.
_TIDY_WITHIN_S = 2.0


class Aftermath:
    """Takes traces away and answers those who came too late, while the conversation goes on.

    Traces that are not away yet are kept with the lease, for whoever comes after this process.
    """

    def __init__(self, lease: Lease, desk: Desk) -> None:
        self._lease = lease
        self._desk = desk
        self._traces: list[Traces] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_kept = False

    @property
    def is_done(self) -> bool:
        return not self._tasks

    async def tidy(self, traces: Traces) -> None:
        """Take the traces of a run away; returns when they are, or when that takes long."""
        await asyncio.wait({self._begin_to_tidy(traces)}, timeout=_TIDY_WITHIN_S)

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Take away what another process had begun to."""
        for traces in map(Traces.read, kept.get("traces", ())):
            self._is_kept = True
            self._begin_to_tidy(traces)

    def tell(self, entry: Entry, message: Message, text: str) -> None:
        """Answer a message; its entry is closed when Slack has the answer."""
        self._beside(self._tell(entry, message, text))

    async def keep(self) -> None:
        """Keep what is not away yet. No run may be on, or begin meanwhile."""
        if self._traces or self._is_kept:
            await self.end_run({})

    async def end_run(self, closed: Mapping[int, End]) -> None:
        """Write down that no run is on any more, how its messages leave the inbox, and what is not away yet."""
        self._is_kept = bool(self._traces)
        await self._lease.write(Changes(run=self.kept(), closed=closed))

    def kept(self) -> dict[str, Any]:
        """What is not away yet, as it stands in a record."""
        return {"traces": [asdict(traces) for traces in self._traces]} if self._traces else {}

    async def done(self, news: asyncio.Event) -> None:
        """Return when all is done, or there are news."""
        waiting = asyncio.create_task(news.wait())
        try:
            while self._tasks and not waiting.done():
                await asyncio.wait({waiting, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})

    def _begin_to_tidy(self, traces: Traces) -> asyncio.Task[None]:
        self._traces.append(traces)
        # Said at once: a run that begins meanwhile says otherwise.
        told = self._desk.native.show(traces.place, ACTIVE)
        return self._beside(self._tidy(traces, told))

    async def _tidy(self, traces: Traces, told: asyncio.Task[None] | None) -> None:
        await self._desk.take_away(traces)
        if told is not None:
            await asyncio.wait((told,))
        self._traces.remove(traces)

    async def _tell(self, entry: Entry, message: Message, text: str) -> None:
        await self._desk.told(message, text, self._lease.confirm)
        await self._lease.write(Changes(closed={entry.seq: "done"}))

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._desk.spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
