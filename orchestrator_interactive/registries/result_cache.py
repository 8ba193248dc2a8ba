"""Results of a tool that are given again, and its calls that are on."""

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

# Of results that are kept of one tool; the one that was asked for longest ago goes first. A large one is not kept.
_MOST_KEPT = 256
_MOST_CHARS = 100_000


@dataclass(slots=True)
class _Flight:
    """A call that is on, and how many wait for it."""

    work: CancellableTask[ToolResult]
    waiting: int = 0


class ResultCache:
    """The results of one tool, by the arguments of its calls. Failures are not kept.

    Args:
        cache_s: how long a result is given again, in seconds.
        dedup_s: the same; besides, a call that comes while the same one is on waits for that one's result. `None`: it
            runs beside it.
        clock: seconds from some beginning.
    """

    def __init__(self, cache_s: float | None, dedup_s: float | None, clock: Callable[[], float]) -> None:
        self._for_s = max(cache_s or 0, dedup_s or 0)
        self._one_at_a_time = dedup_s is not None
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, ToolResult]] = OrderedDict()
        self._flights: dict[str, _Flight] = {}

    async def result_of(self, key: str, run: Run) -> ToolResult:
        """The result for these arguments: a kept one, that of the call which is on, or what `run` gives."""
        kept = self._fresh(key)
        if kept is not None:
            return kept
        if self._one_at_a_time:
            return await self._joined(key, run)
        return self._keep(key, await run())

    def _fresh(self, key: str) -> ToolResult | None:
        until, result = self._kept.get(key, (0.0, None))
        if result is None:
            return None
        if self._clock() >= until:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return result.model_copy(deep=True)

    def _keep(self, key: str, result: ToolResult) -> ToolResult:
        if result.success and self._for_s and size_of(result, _MOST_CHARS) <= _MOST_CHARS:
            # A copy, since hooks may change what the caller has.
            self._kept[key] = (self._clock() + self._for_s, result.model_copy(deep=True))
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return result

    async def _joined(self, key: str, run: Run) -> ToolResult:
        """The result of the one call that is on. Whoever is cancelled leaves it to the others; the last one cuts it."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(CancellableTask(self._flown(key, run())))
        flight.waiting += 1
        try:
            return (await asyncio.shield(flight.work.task)).model_copy(deep=True)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                self._land(key, flight.work.task)
                flight.work.cut()
                await flight.work.end()

    async def _flown(self, key: str, running: Awaitable[ToolResult]) -> ToolResult:
        try:
            return self._keep(key, await running)
        finally:
            self._land(key, asyncio.current_task())

    def _land(self, key: str, task: asyncio.Task[Any] | None) -> None:
        """No call joins it any more."""
        flight = self._flights.get(key)
        if flight is not None and flight.work.task is task:
            del self._flights[key]
