"""Tasks that a stop can cancel, and that cannot block the loop: model calls and tool calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import structlog

from orchestrator_interactive.kernel.timeout import CANCEL_GRACE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

log = structlog.get_logger(__name__)

T = TypeVar("T")


class CancellableTask(Generic[T]):
    """A task that can be cancelled. One that ignores it is abandoned, but stays referenced until it ends."""

    _abandoned: ClassVar[set[asyncio.Task[Any]]] = set()

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(coroutine)
        self.is_over = False
        self.on_over: Callable[[], object] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._grace_timer: asyncio.TimerHandle | None = None
        self.task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        if self.task.done() or self._grace_timer is not None:
            return
        self.task.cancel()
        self._grace_timer = self._loop.call_later(CANCEL_GRACE_S, self._abandon)

    async def wait(self, on_cancel: Callable[[], object] | None = None) -> None:
        """Wait until the task has ended or was abandoned (`is_over`); its outcome is in `task`.

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

    def has_outcome(self) -> bool:
        """Return whether the task ended with a result or an error; False if it was cancelled."""
        return self.task.done() and not self.task.cancelled()

    def _on_done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # mark it as retrieved: a cancelled waiter does not read it
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        self._release()

    def _release(self) -> None:
        self.is_over = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self.on_over is not None:
            self.on_over()

    def _abandon(self) -> None:
        self.task.cancel()  # again: the code that ignored the first one may have ended
        self._abandoned.add(self.task)
        self.task.add_done_callback(self._on_late_end)
        log.warning("task.abandoned", task=repr(self.task.get_coro()))
        self._release()

    def _on_late_end(self, task: asyncio.Task[T]) -> None:
        self._abandoned.discard(task)
        error = None if task.cancelled() else task.exception()
        log.info("task.ended_late", error=repr(error) if error else None)
