"""Waiting in tests: for what must come soon, and for milestones."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

# A test that waits longer than this has found a hang; no outcome depends on the number.
HANG_S = 3.0

# Far longer than a test takes: a grace period that ends by itself is a hang.
LONG_S = 600


async def soon(awaitable: Awaitable[T]) -> T:
    """The outcome of what must end by itself; a hang is a failure rather than a stuck test run."""
    async with asyncio.timeout(HANG_S):
        return await awaitable


async def deaf_to_one_cancel(release: asyncio.Event) -> None:
    """Wait for the event, and ignore the first cancellation while waiting."""
    await _deaf(release, 1)


async def deaf_to_the_loop(release: asyncio.Event) -> None:
    """Wait for the event, and ignore every cancellation that the loop has for a task before it leaves it behind."""
    await _deaf(release, 2)


async def _deaf(release: asyncio.Event, cancellations: int) -> None:
    for _ in range(cancellations):
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue
        return
    await release.wait()


class Milestones:
    """Lets a test wait for the n-th time that something happened."""

    def __init__(self) -> None:
        self.count = 0
        self._events: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def pass_one(self) -> None:
        self.count += 1
        self._events[self.count].set()

    async def reached(self, number: int) -> None:
        await soon(self._events[number].wait())
