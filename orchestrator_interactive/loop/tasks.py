"""Tasks of the loop that can be cancelled, and their deadlines."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import structlog

from orchestrator_interactive.kernel.timeout import CANCEL_GRACE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

log = structlog.get_logger(__name__)

T = TypeVar("T")


class CancellableTask(Generic[T]):
    """A task that can be cancelled. One that ignores it is abandoned, but stays referenced until it ends.

    `is_over`: it has ended or was abandoned; `on_over` is called then. `is_finished`: it ended with a result or an
    error, not by cancellation; then it has a `value` or an `error`.
    """

    _abandoned: ClassVar[set[asyncio.Task[Any]]] = set()

    def __init__(self, coroutine: Coroutine[Any, Any, T], on_over: Callable[[], object] | None = None) -> None:
        self.is_over = False
        self.is_finished = False
        self.error: Exception | None = None
        self.value: T | None = None
        self._coroutine = coroutine
        self._on_over = on_over
        self._has_begun = False
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._grace_timer: asyncio.TimerHandle | None = None
        self.task = self._loop.create_task(self._run())

    def cancel(self, grace_s: float | None = CANCEL_GRACE_S) -> None:
        """Cancel the task, and abandon it after `grace_s` seconds; None: never."""
        if self.is_over or self._grace_timer is not None:
            return
        self.task.cancel()
        if not self._has_begun:  # it never runs
            self._coroutine.close()
            self._grace_timer = self._loop.call_later(0, self._end)
        elif grace_s is not None:
            self._grace_timer = self._loop.call_later(grace_s, self._abandon)

    async def wait(self, on_cancel: Callable[[], object] | None = None) -> None:
        """Wait until the task has ended or was abandoned.

        Cancelling the waiter cancels the task, or calls `on_cancel`, and still waits for it.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self.is_over:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as e:
                cancelled = e
                (on_cancel or self.cancel)()
        if cancelled is not None:
            raise cancelled

    async def shared(self) -> T:
        """Wait for the result. Cancelling the waiter does not cancel the task."""
        await asyncio.shield(self.task)
        return self.result()

    def result(self) -> T:
        """Return the result, or raise the error; CancelledError if the task was cancelled or abandoned."""
        if self.error is not None:
            raise self.error
        if not self.is_finished:
            raise asyncio.CancelledError
        return self.value  # type: ignore[return-value] # a finished task without an error has one

    async def _run(self) -> None:
        self._has_begun = True
        try:
            self.value = await self._coroutine
            self.is_finished = not self.is_over
        except Exception as e:  # noqa: BLE001 - the waiter gets it
            self.error, self.is_finished = e, not self.is_over
        finally:
            self._end()

    def _end(self) -> None:
        if self.is_over:  # abandoned earlier
            self._abandoned.discard(self.task)
            log.info("task.ended_late", error=repr(self.error) if self.error else None)
            return
        self.is_over = True
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._on_over is not None:
            self._on_over()

    def _abandon(self) -> None:
        self.task.cancel()  # again: the code that ignored the first one may have ended
        self._abandoned.add(self.task)
        log.warning("task.abandoned", task=repr(self._coroutine))
        self._end()


class Deadlines:
    """Deadlines with one timer for all: most tasks end long before theirs, and a timer is expensive."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at: dict[object, tuple[float, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf

    def set(self, key: object, delay_s: float, callback: Callable[[], object]) -> None:
        """Call `callback` in `delay_s` seconds, unless the deadline is cleared or set again before."""
        at = self._loop.time() + delay_s
        self._at[key] = (at, callback)
        if at < self._next:
            self._arm(at)

    def clear(self, key: object) -> None:
        self._at.pop(key, None)

    def close(self) -> None:
        """Clear every deadline."""
        self._at.clear()
        self._arm(inf)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = at
        self._timer = None if at == inf else self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        due = [(key, callback) for key, (at, callback) in self._at.items() if at <= self._next]
        for key, _ in due:
            del self._at[key]
        self._arm(min((at for at, _ in self._at.values()), default=inf))
        for _, callback in due:
            callback()
