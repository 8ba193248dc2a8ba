"""Who may call Slack next: never more often than Slack allows, what matters most first, and fair over the runs."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Self

from connector.outbound.budget import OwnBudget
from connector.outbound.limits import limits_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from connector.protocols import Budget, Limit

# While another process takes what we wait for, we ask again; and nobody sleeps through a clock that was set.
_LONGEST_WAIT_S = 5.0
# A wait that was computed may end a moment too early.
_SLACK_S = 0.001


class NotNeeded(Exception):  # noqa: N818 - a fact about the call
    """What was to be called is not wanted any more."""


class Urgency(IntEnum):
    """What goes before what, where not all can go at once."""

    ANSWER = 0
    STATUS = 1
    MARK = 2


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Turn:
    """A call's place among the others.

    Args:
        run: whose it is; runs take turns.
        is_needed: asked while it waits; where it says no, the call does not take place.
    """

    urgency: Urgency = Urgency.ANSWER
    run: str = ""
    is_needed: Callable[[], bool] = _always


@dataclass(order=True, slots=True)
class _Waiter:
    urgency: Urgency
    round: int
    number: int
    is_needed: Callable[[], bool] = field(compare=False)
    turn: asyncio.Future[None] = field(compare=False)


class Scheduler:
    """Gives out the calls that Slack allows in one workspace.

    Args:
        workspace: its id, under which processes share the budget.
        budget: what is left; `None`: only this process makes any calls.
        scale: a factor on Slack's limits.
    """

    def __init__(self, workspace: str, budget: Budget | None = None, scale: float = 1.0) -> None:
        self._workspace = workspace
        self._budget = budget or OwnBudget()
        self._scale = scale
        self._queues: dict[str, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait(self, method: str, channel: str, turn: Turn) -> None:
        """Return when the call may be made.

        Raises:
            NotNeeded: it is not wanted any more.
        """
        for bucket, limit in limits_of(method, channel, self._scale).items():
            await self._queue(bucket, limit).wait(turn)

    async def pause(self, method: str, channel: str, for_s: float) -> None:
        """Call this for nobody for so long: Slack has said so."""
        bucket = next(iter(limits_of(method, channel, self._scale)))
        await self._budget.pause(f"{self._workspace}:{bucket}", for_s)

    def _queue(self, bucket: str, limit: Limit) -> _Queue:
        if bucket not in self._queues:
            self._queues[bucket] = _Queue(f"{self._workspace}:{bucket}", limit, self._budget, self._tasks)
        return self._queues[bucket]


class _Queue:
    """Those who wait for one bucket: by urgency, then one of each run after the other."""

    def __init__(self, bucket: str, limit: Limit, budget: Budget, tasks: set[asyncio.Task[None]]) -> None:
        self._bucket = bucket
        self._limit = limit
        self._budget = budget
        self._tasks = tasks
        self._waiting: list[_Waiter] = []
        self._number = self._round = 0
        self._rounds: dict[tuple[Urgency, str], int] = {}

    async def wait(self, turn: Turn) -> None:
        if not self._waiting and not await self._budget.take(self._bucket, self._limit):
            return
        self._number += 1
        who = turn.urgency, turn.run
        own_round = self._rounds[who] = max(self._round, self._rounds.get(who, 0)) + 1
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, _Waiter(turn.urgency, own_round, self._number, turn.is_needed, future))
        if len(self._waiting) == 1:
            serving = asyncio.create_task(self._serve())
            self._tasks.add(serving)
            serving.add_done_callback(self._tasks.discard)
        await future

    async def _serve(self) -> None:
        """Give out turns for as long as somebody waits."""
        while self._first() is not None:
            wait_s = await self._budget.take(self._bucket, self._limit)
            if wait_s:
                await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S) + _SLACK_S)
            elif (first := self._first()) is not None:
                heapq.heappop(self._waiting)
                self._round = max(self._round, first.round)
                first.turn.set_result(None)
        self._rounds.clear()

    def _first(self) -> _Waiter | None:
        """The first one who still waits for what is still needed."""
        while self._waiting:
            first = self._waiting[0]
            if first.turn.done():
                heapq.heappop(self._waiting)
            elif not first.is_needed():
                heapq.heappop(self._waiting)
                first.turn.set_exception(NotNeeded())
            else:
                return first
        return None
