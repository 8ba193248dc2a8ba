"""Tasks of the loop's own: a model call, a tool call. A stop can cut them, and none can hold the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

log = structlog.get_logger(__name__)

T = TypeVar("T")

# How long a task that was cancelled may take to heed it before the loop goes on without it.
HEED_WITHIN_S = 0.3


class Work(Generic[T]):
    """A task that can be cut. One that does not heed the cut is left behind, still referenced until it ends."""

    _left_behind: ClassVar[set[asyncio.Task[Any]]] = set()

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(coroutine)
        self._ended: asyncio.Future[None] = loop.create_future()
        self._heed: asyncio.TimerHandle | None = None
        self.task.add_done_callback(self._on_done)

    def cut(self) -> None:
        if self.task.done() or self._heed is not None:
            return
        self.task.cancel()
        self._heed = self.task.get_loop().call_later(HEED_WITHIN_S, self._leave_behind)

    async def end(self) -> None:
        """Wait until the task has ended or was left behind; its outcome stays in `task`.

        Cancelling the waiter cuts the task and waits for it all the same.
        """
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.cut()
            await self._ended
            raise

    def finished(self) -> bool:
        """Whether it ran to its end: with a result or an error rather than cut."""
        return self.task.done() and not self.task.cancelled()

    def _on_done(self, _task: asyncio.Task[T]) -> None:
        if self._heed is not None:
            self._heed.cancel()
        if not self._ended.done():
            self._ended.set_result(None)

    def _leave_behind(self) -> None:
        self._left_behind.add(self.task)
        self.task.add_done_callback(self._on_late_end)
        log.warning("work.left_behind", task=repr(self.task.get_coro()))
        self._ended.set_result(None)

    def _on_late_end(self, task: asyncio.Task[T]) -> None:
        self._left_behind.discard(task)
        error = None if task.cancelled() else task.exception()
        log.info("work.ended_late", error=repr(error) if error else None)
