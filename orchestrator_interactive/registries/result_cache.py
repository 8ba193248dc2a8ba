"""Cache of a tool's results, with deduplication of its running calls."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.loop.tool_results import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orchestrator_interactive.kernel.contracts.models import ToolResult

    Run = Callable[[], Coroutine[Any, Any, ToolResult]]

# Entries per tool, evicted least recently used first; and the size of a result above which it is not cached.
_MAX_KEPT = 256
_MAX_CHARS = 100_000


@dataclass(slots=True, eq=False)
class _SharedCall:
    """A running call, and the number of callers that wait for it."""

    run: CancellableTask[ToolResult]
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
        self._running: dict[str, _SharedCall] = {}

    async def result_of(self, key: str, run: Run) -> ToolResult:
        """Return the cached result, the result of an identical running call, or that of `run`."""
        until, result = self._results.get(key, (0.0, None))
        if result is not None and self._clock() < until:
            self._results.move_to_end(key)
            return result.model_copy(deep=True)  # callers may change their result, as hooks do
        if self._shares_calls:
            return (await self._join(key, run)).model_copy(deep=True)
        return await self._run(key, run)

    async def _run(self, key: str, run: Run) -> ToolResult:
        result = await run()
        if result.success and self._ttl_s and size_of(result, _MAX_CHARS) <= _MAX_CHARS:
            self._results[key] = (self._clock() + self._ttl_s, result.model_copy(deep=True))
            self._results.move_to_end(key)
            if len(self._results) > _MAX_KEPT:
                self._results.popitem(last=False)
        return result

    async def _join(self, key: str, run: Run) -> ToolResult:
        """Join the running call, or start it. It is cancelled when its last waiting caller is cancelled."""
        call = self._running.get(key)
        if call is None or call.run.is_over:
            call = self._running[key] = _SharedCall(CancellableTask(self._run(key, run)))
        call.waiting += 1
        try:
            return await call.run.shared()
        finally:
            call.waiting -= 1
            if not call.waiting:
                if self._running.get(key) is call:
                    del self._running[key]
                call.run.cancel()
                await call.run.wait()
