"""Cache of a tool's results, with deduplication of its running calls."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.loop.large_results import size_of
from orchestrator_interactive.loop.tasks import CancellableTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from orchestrator_interactive.kernel.contracts.models import ToolResult

    Run = Callable[[], Coroutine[Any, Any, ToolResult]]

# Entries per tool, evicted least recently used first; and the size of a result above which it is not cached.
_MAX_KEPT = 256
_MAX_CHARS = 100_000


@dataclass(slots=True)
class _RunningCall:
    """A running call, and the number of callers that wait for it."""

    task: CancellableTask[ToolResult]
    waiting: int = 0


class ResultCache:
    """The results of one tool, by the arguments of its calls. Failures are not cached.

    Args:
        cache_s: lifetime of a result, in seconds.
        dedup_s: like `cache_s`, and identical calls that overlap share one execution. `None`: they run in parallel.
        clock: returns a monotonic time in seconds.
    """

    def __init__(self, cache_s: float | None, dedup_s: float | None, clock: Callable[[], float]) -> None:
        self._ttl_s = max(cache_s or 0, dedup_s or 0)
        self._shares_calls = dedup_s is not None
        self._clock = clock
        self._results: OrderedDict[str, tuple[float, ToolResult]] = OrderedDict()
        self._running: dict[str, _RunningCall] = {}

    async def result_of(self, key: str, run: Run) -> ToolResult:
        """Return the cached result, the result of an identical running call, or that of `run`."""
        kept = self._fresh(key)
        if kept is not None:
            return kept
        if self._shares_calls:
            return await self._join(key, run)
        return self._store(key, await run())

    def _fresh(self, key: str) -> ToolResult | None:
        until, result = self._results.get(key, (0.0, None))
        if result is None:
            return None
        if self._clock() >= until:
            del self._results[key]
            return None
        self._results.move_to_end(key)
        return result.model_copy(deep=True)

    def _store(self, key: str, result: ToolResult) -> ToolResult:
        if result.success and self._ttl_s and size_of(result, _MAX_CHARS) <= _MAX_CHARS:
            # A copy: hooks may change the caller's result.
            self._results[key] = (self._clock() + self._ttl_s, result.model_copy(deep=True))
            if len(self._results) > _MAX_KEPT:
                self._results.popitem(last=False)
        return result

    async def _join(self, key: str, run: Run) -> ToolResult:
        """Join the running call, or start it. It is cancelled when its last waiting caller is cancelled."""
        call = self._running.get(key)
        if call is None:
            call = self._running[key] = _RunningCall(CancellableTask(self._run_and_keep(key, run())))
        call.waiting += 1
        try:
            return (await call.task.shared()).model_copy(deep=True)
        finally:
            call.waiting -= 1
            if not call.waiting:
                self._remove(key, call.task.task)
                call.task.cancel()
                await call.task.wait()

    async def _run_and_keep(self, key: str, running: Awaitable[ToolResult]) -> ToolResult:
        try:
            return self._store(key, await running)
        finally:
            self._remove(key, asyncio.current_task())

    def _remove(self, key: str, task: asyncio.Task[Any] | None) -> None:
        """Remove a running call, so that no further caller joins it."""
        call = self._running.get(key)
        if call is not None and call.task.task is task:
            del self._running[key]
