"""A time limit that costs nothing until something waits."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator

    from orchestrator_interactive.kernel.cancellation import CancellationToken

T = TypeVar("T")


# What a stop leaves to those who are only told of things.
_A_MOMENT_S = 0.3


async def within(timeout_s: float, awaitable: Awaitable[T], stop: CancellationToken | None = None) -> T:
    """Await something for at most `timeout_s` seconds, and for a moment only once `stop` has been requested.

    A timer costs several times what a short handler does, and most handlers never wait: a coroutine gets its timer
    when it waits for the first time.

    Raises:
        TimeoutError: it took longer; it was cancelled.
    """
    if asyncio.iscoroutine(awaitable):
        try:
            waits_for = awaitable.send(None)
        except StopIteration as finished:
            result: T = finished.value
            return result
        awaitable = _Begun(awaitable, waits_for)
    async with asyncio.timeout(timeout_s) as limit:
        with nullcontext() if stop is None else stop.watch(partial(_shorten, limit)):
            result = await awaitable
    if limit.expired():
        raise TimeoutError  # it answered its cancellation: too late
    return result


def _shorten(limit: asyncio.Timeout) -> None:
    soon = asyncio.get_running_loop().time() + _A_MOMENT_S
    if not limit.expired() and (limit.when() or soon) >= soon:
        limit.reschedule(soon)


class _Begun(Generic[T]):
    """The rest of a coroutine that has begun and waits for something: what `await` does (PEP 380), from there on."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        while True:
            thrown: BaseException | None = None
            sent = None
            try:
                sent = yield waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as e:  # noqa: BLE001 - whatever it is, it is the coroutine's to handle
                thrown = e
            try:
                waits_for = self._coroutine.send(sent) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration as finished:
                result: T = finished.value
                return result
