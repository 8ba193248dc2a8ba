"""Retries while a store is unreachable, with log messages about the outage."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, TypeVar

import structlog

from orchestrator_interactive.storage.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import Change, Log, LogStore

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Maximum number of concurrent retries.
_AT_A_TIME = 16
# Shortest and longest back-off before a retry; it grows with the duration of the outage.
_BACKOFF_S = (0.02, 1.0)
# Interval of log messages during an outage.
_LOG_EVERY_S = 10.0


class StoreRetryPolicy:
    """Tracks outages of a store and retries calls; shared by all users of the store in a process.

    An outage lasts from the first call that finds the store unreachable until no call is waiting. At most
    `_AT_A_TIME` calls are retried concurrently, in turns, because one server of a cluster may be back before another.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._logged_s = 0.0
        self._back_s: float | None = None
        self._waiting = 0
        self._is_answering = True
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    @property
    def is_unavailable(self) -> bool:
        """Whether a call is waiting for the store."""
        return self._waiting > 0

    async def call(self, step: Callable[[], Awaitable[T]]) -> T:
        """Call the store; retry while it is unreachable."""
        try:
            answer = await step()
        except StoreUnavailable as e:
            self._on_unavailable(e)
        else:
            self._on_available()
            return answer
        self._waiting += 1
        try:
            answer = await self._retried(step)
        finally:
            self._waiting -= 1
        self._on_available()
        return answer

    def unsettled_s(self, settled_after_s: float) -> float:
        """Return the remaining seconds until `settled_after_s` after an outage; all of them during an outage."""
        if self._since_s is not None:
            return settled_after_s
        if self._back_s is None:
            return 0.0
        return max(self._back_s + settled_after_s - asyncio.get_running_loop().time(), 0.0)

    async def _retried(self, step: Callable[[], Awaitable[T]]) -> T:
        while True:
            async with self._slots:
                await asyncio.sleep(self._backoff_s() * random.uniform(0.5, 1))  # noqa: S311 - jitter
                try:
                    answer = await step()
                except StoreUnavailable as e:
                    self._on_unavailable(e)
                else:
                    self._is_answering = True  # resets the back-off of the waiting calls
                    return answer

    def _backoff_s(self) -> float:
        shortest_s, longest_s = _BACKOFF_S
        if self._is_answering or self._since_s is None:
            return shortest_s
        return min(max(asyncio.get_running_loop().time() - self._since_s, shortest_s), longest_s)

    def _on_unavailable(self, error: StoreUnavailable) -> None:
        self._is_answering = False
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s, self._logged_s = now_s, now_s
            log.warning("store.unavailable", problem=str(error))
        elif now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            log.warning(
                "store.unavailable", problem=str(error), for_s=round(now_s - self._since_s, 1), waiting=self._waiting
            )

    def _on_available(self) -> None:
        self._is_answering = True
        # One server of a cluster may answer while another is still unreachable.
        if self._since_s is None or self._waiting:
            return
        self._back_s = asyncio.get_running_loop().time()
        log.info("store.available", after_s=round(self._back_s - self._since_s, 1))
        self._since_s = None


class RetryingStore:
    """A log store that retries calls while the store is unreachable."""

    def __init__(self, store: LogStore, retry: StoreRetryPolicy) -> None:
        self._store = store
        self._call = retry.call

    async def load(self, key: Key) -> Log | None:
        return await self._call(lambda: self._store.load(key))

    async def fence(self, key: Key, token: int) -> None:
        await self._call(lambda: self._store.fence(key, token))

    async def commit(self, key: Key, change: Change) -> None:
        await self._call(lambda: self._store.commit(key, change))

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        return await self._call(lambda: self._store.read(key, segment, start, stop))

    async def keys(self) -> list[Key]:
        return await self._call(self._store.keys)

    async def scan(self, since: float, until: float, kinds: Sequence[str]) -> AsyncIterator[tuple[Key, Node]]:
        """Scan as the wrapped store does. Retries until the first row; an outage after it raises StoreUnavailable."""
        found: AsyncIterator[tuple[Key, Node]]

        async def begin() -> list[tuple[Key, Node]]:
            nonlocal found
            found = self._store.scan(since, until, kinds)
            return [each async for each in _first(found)]

        for each in await self._call(begin):
            yield each
        async for each in found:
            yield each

    async def remove(self, key: Key, version: int) -> None:
        await self._call(lambda: self._store.remove(key, version))

    async def save_agent(self, agent_id: str, config: str) -> None:
        await self._call(lambda: self._store.save_agent(agent_id, config))

    async def agents(self) -> dict[str, str]:
        return await self._call(self._store.agents)

    async def forget_agent(self, agent_id: str) -> None:
        await self._call(lambda: self._store.forget_agent(agent_id))

    async def delete_expired(self) -> None:
        await self._call(self._store.delete_expired)

    async def aclose(self) -> None:
        await self._store.aclose()


async def _first(found: AsyncIterator[T]) -> AsyncIterator[T]:
    async for each in found:
        yield each
        return
