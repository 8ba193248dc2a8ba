"""Time limit that creates a timer only if the awaited code suspends."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import nullcontext
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from orchestrator_interactive.kernel.cancellation import CancellationToken

T = TypeVar("T")


# Time for cancelled code to end, in seconds.
CANCEL_GRACE_S = 0.3


async def with_timeout(timeout_s: float, awaitable: Awaitable[T], stop: CancellationToken | None = None) -> T:
    """Await something for at most `timeout_s` seconds, or 0.3 s after `stop` is requested.

    A timer costs several times as much as a short handler, and most handlers never suspend: the timer is created when
    a coroutine suspends for the first time.

    Raises:
        TimeoutError: the limit was exceeded and the awaitable cancelled.
    """
    if isinstance(awaitable, CoroutineType) or asyncio.iscoroutine(awaitable):
        try:
            waits_for = awaitable.send(None)
        except StopIteration as finished:
            result: T = finished.value
            return result
        awaitable = _StartedCoroutine(awaitable, waits_for)
    async with asyncio.timeout(timeout_s) as limit:
        with nullcontext() if stop is None else stop.watch(partial(_reschedule, limit)):
            result = await awaitable
    if limit.expired():
        raise TimeoutError  # it returned after its cancellation
    return result


def _reschedule(limit: asyncio.Timeout) -> None:
    soon = asyncio.get_running_loop().time() + CANCEL_GRACE_S
    if not limit.expired() and (limit.when() or soon) >= soon:
        limit.reschedule(soon)


class _StartedCoroutine(Generator[Any, Any, T]):
    """The rest of a coroutine that is suspended for the first time, for `await`: its first step is already done."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._first_future = waits_for
        self._is_resumed = False

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any, /) -> Any:
        if self._is_resumed:
            return self._coroutine.send(value)
        self._is_resumed = True
        return self._first_future

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()
