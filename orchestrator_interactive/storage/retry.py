"""Retries while a store is unreachable, with log messages about the outage."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar, cast

import structlog

from orchestrator_interactive.storage.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger(__name__)

T = TypeVar("T")
S = TypeVar("S")

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
            self._waiting += 1
            try:
                answer = await self._retried(step)
            finally:
                self._waiting -= 1
        self._is_answering = True
        # One server of a cluster may answer while another is still unreachable.
        if self._since_s is not None and not self._waiting:
            self._back_s = asyncio.get_running_loop().time()
            log.info("store.available", after_s=round(self._back_s - self._since_s, 1))
            self._since_s = None
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


def retrying(store: S, policy: StoreRetryPolicy) -> S:
    """Return a store whose asynchronous methods are retried by the policy while the given one is unreachable."""
    return cast("S", _RetryingStore(store, policy))


class _RetryingStore:
    def __init__(self, store: Any, policy: StoreRetryPolicy) -> None:
        self._store = store
        self._policy = policy
        self.aclose = store.aclose

    def __getattr__(self, name: str) -> Any:
        """Return the store's method of this name with retries."""
        method = getattr(self._store, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await self._policy.call(lambda: method(*arguments, **named))

        setattr(self, name, call)
        return call
