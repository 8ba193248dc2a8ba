"""Heartbeats of the processes that share a store, and the end of the leases of a process without them.

A process that dies leaves its leases behind, which are valid for `lease_s`. Each process therefore also sends a
heartbeat several times a second, and listens to those of the others. If one is silent while the store takes and shows
all heartbeats of the listener in time, the listener ends its leases. A process that was only suspended finds them lost,
or renews them if no other process has claimed its conversations.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from service.store.base import RunStore

log = structlog.get_logger(__name__)

# The interval of the heartbeats.
EVERY_S = 0.25
# A process is silent if it has sent none for so long; its leases end if they were also not renewed for UNRENEWED_S.
SILENT_S = 2.0
UNRENEWED_S = 1.5
# An owner whose last heartbeat or renewal is older asks the store before it acts, as after a gap between heartbeats.
# Less than both, for delays.
SURE_S = 0.5
# A longer interval between two heartbeats is a gap: it says nothing about the others, and they may have noticed it.
_LATE_S = 0.75
# Delay before a store that reports an error is tried again.
_AGAIN_S = 1.0
# Time limit for the end of the thread.
_ENDED_WITHIN_S = 1.0


class AnyHeartbeats(Protocol):
    def is_lease_safe(self, renewed_s: float, /) -> bool: ...
    def listen(self, on_ended: Callable[[], object], /) -> None: ...
    async def run(self) -> None: ...


class Heartbeats:
    """Sends the heartbeats of a process and listens to the others.

    Args:
        store: the store of the heartbeats and leases.
        owner: name of this process.
        clock: monotonic seconds.
    """

    def __init__(self, store: RunStore, owner: str, clock: Callable[[], float]) -> None:
        # When the last heartbeat that the store has taken was sent, and the first one after which there was no gap.
        self._last_s = self._since_s = float("-inf")
        self._store = store
        self._owner = owner
        self._clock = clock
        self._heard: dict[str, tuple[int, float]] = {}  # by process: the count, and since when it is known
        self._listeners: list[Callable[[], object]] = []

    def is_lease_safe(self, renewed_s: float) -> bool:
        """Return whether no other process can have ended a lease of this one that was renewed at this time.

        Another thread may call it.
        """
        last_s = self._last_s  # read before `_since_s`, which is written before it
        has_no_gap, now_s = self._since_s <= renewed_s, self._clock()
        return now_s - renewed_s <= SURE_S or (has_no_gap and now_s - last_s <= SURE_S)

    def listen(self, on_ended: Callable[[], object]) -> None:
        """Call `on_ended()` each time after leases of another process have ended."""
        self._listeners.append(on_ended)

    async def run(self) -> None:
        """Send heartbeats and listen for ever."""
        ending: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                began_s = self._clock()
                for owner in await self._silent():
                    if owner not in ending or ending[owner].done():
                        ending[owner] = group.create_task(self._end_leases(owner))
                ending = {owner: task for owner, task in ending.items() if not task.done()}
                await asyncio.sleep(max(EVERY_S - (self._clock() - began_s), EVERY_S / 5))

    async def _silent(self) -> list[str]:
        """Send a heartbeat; return the processes that are silent."""
        at_s = self._clock()
        try:
            async with asyncio.timeout(_LATE_S):
                counts = await self._store.beat(self._owner)
        except (StoreError, TimeoutError):
            self._heard.clear()
            return []
        if at_s - self._last_s > _LATE_S:  # others may have ended the leases of this process
            self._heard.clear()
            self._since_s = at_s
        self._last_s, now_s = at_s, self._clock()
        self._heard = {
            owner: known if (known := self._heard.get(owner)) and known[0] == count else (count, now_s)
            for owner, count in counts.items()
            if owner != self._owner
        }
        return [owner for owner, (_, since_s) in self._heard.items() if at_s - since_s >= SILENT_S]

    async def _end_leases(self, owner: str) -> None:
        wait_s = 0.0
        try:
            if await self._store.end_leases(owner, UNRENEWED_S):
                log.info("owner.silent", owner=owner)
        except StoreError as e:  # those on other servers of a cluster have ended
            log.warning("owner.leases_not_ended", owner=owner, problem=str(e))
            wait_s = _AGAIN_S
        for listener in self._listeners:
            listener()
        await asyncio.sleep(wait_s)


class ThreadedHeartbeats:
    """Heartbeats in a thread and an event loop of their own: a busy event loop does not silence its process.

    Args:
        open_store: opens a store for the thread, which closes it.
    """

    def __init__(self, open_store: Callable[[], Awaitable[RunStore]], owner: str, clock: Callable[[], float]) -> None:
        self._open_store = open_store
        self._owner = owner
        self._clock = clock
        self._listeners: list[Callable[[], object]] = []
        self._inner: Heartbeats | None = None
        self._is_ended = False
        self._end: Callable[[], object] = lambda: None

    def is_lease_safe(self, renewed_s: float) -> bool:
        """See `Heartbeats`."""
        return self._inner is not None and self._inner.is_lease_safe(renewed_s)

    def listen(self, on_ended: Callable[[], object]) -> None:
        """See `Heartbeats`. The call is in the event loop that runs `run`."""
        self._listeners.append(on_ended)

    async def run(self) -> None:
        """Send heartbeats and listen for ever."""
        pool = ThreadPoolExecutor(1, "heartbeats")
        work = asyncio.get_running_loop().run_in_executor(pool, asyncio.run, self._live(asyncio.get_running_loop()))
        try:
            await asyncio.shield(work)
        finally:
            self._is_ended = True
            self._end()
            await asyncio.wait({work}, timeout=_ENDED_WITHIN_S)
            pool.shutdown(wait=False)

    async def _live(self, home: asyncio.AbstractEventLoop) -> None:
        """Beat until `_end` is called in the other thread."""

        def tell() -> None:
            with suppress(RuntimeError):  # that loop has ended
                for listener in self._listeners:
                    home.call_soon_threadsafe(listener)

        task, here = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._end = partial(here.call_soon_threadsafe, task.cancel)
        try:
            while not self._is_ended:
                try:
                    async with aclosing(await self._open_store()) as store:
                        self._inner = Heartbeats(store, self._owner, self._clock)
                        self._inner.listen(tell)
                        await self._inner.run()
                except StoreUnavailable:
                    await asyncio.sleep(EVERY_S)
                except StoreError as e:  # without heartbeats, the leases are valid nevertheless
                    log.error("store.unusable", problem=str(e))  # noqa: TRY400 - the message gives the reason
                    await asyncio.sleep(_AGAIN_S)
        except asyncio.CancelledError:
            pass  # by `_end`
        finally:
            self._end = lambda: None
