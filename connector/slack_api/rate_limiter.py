"""Who may call Slack next: never more often than Slack allows, what matters most first, and fair over the runs."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Self

import structlog

from connector.slack_api.rate_budget import LocalRateBudget
from connector.slack_api.tiers import limits_of, look_ups_of

if TYPE_CHECKING:
    from types import TracebackType

    from connector.protocols import Limit, RateBudget

log = structlog.get_logger(__name__)

# While another process takes what we wait for, we ask again; and nobody sleeps through a clock that was set.
_MAX_SLEEP_S = 5.0
# A wait that was computed may end a moment too early.
_MARGIN_S = 0.001
# A budget that fails is asked again.
_RETRY_AFTER_S = 1.0
# A channel's own limit is over in a second or two; who is to wait longer has met the workspace's.
_MAX_CHANNEL_PAUSE_S = 5.0
# Of runs that wait no more, so many are remembered.
_MAX_IDLE_ROUNDS = 100


class CallCancelled(Exception):  # noqa: N818 - a fact about the call
    """What was to be called is not wanted any more."""


class Priority(IntEnum):
    """What goes before what, where not all can go at once."""

    ANSWER = 0
    # An author's name, and whether they may use the bot.
    PERSON = 1
    STATUS = 2
    MARK = 3
    SWEEP = 4
    # What anybody can cause any number of: it also gets only a share of what Slack allows.
    LOOK_UP = 5


class CancelScope:
    """Whether a call is still wanted; one that waits for its turn is let go as soon as it is not."""

    def __init__(self) -> None:
        self.is_over = False
        self._waiting: set[asyncio.Future[None]] = set()

    def forget(self) -> None:
        """Nobody wants it any more."""
        self.is_over = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(CallCancelled())

    def check(self) -> None:
        """Raise `CallCancelled` where nobody wants it any more."""
        if self.is_over:
            raise CallCancelled

    async def wait(self, turn: asyncio.Future[None]) -> None:
        """Return when the turn has come.

        Raises:
            NotNeeded: nobody wants it any more.
        """
        self._waiting.add(turn)
        try:
            await turn
        finally:
            self._waiting.discard(turn)


@dataclass(frozen=True, slots=True)
class CallSlot:
    """A call's place among the others.

    Args:
        run: whose it is; runs take turns.
        scope: once it is over, the call does not take place.
    """

    priority: Priority = Priority.ANSWER
    run: str = ""
    scope: CancelScope = field(default_factory=CancelScope)


@dataclass(order=True, slots=True)
class _Waiter:
    priority: Priority
    round: int
    number: int
    turn: asyncio.Future[None] = field(compare=False)


class RateLimiter:
    """Gives out the calls that Slack allows in one workspace.

    Args:
        workspace: its id, under which processes share the budget.
        budget: what is left; `None`: only this process makes any calls.
        scale: a factor on Slack's limits.
    """

    def __init__(self, workspace: str, budget: RateBudget | None = None, scale: float = 1.0) -> None:
        self._workspace = workspace
        self._budget = budget or LocalRateBudget()
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
        for queue in self._queues.values():
            queue.close()

    async def wait(self, method: str, channel: str, turn: CallSlot) -> None:
        """Return when the call may be made.

        Raises:
            NotNeeded: it is not wanted any more.
        """
        limits = limits_of(method, channel, self._scale)
        if turn.priority is Priority.LOOK_UP:
            limits = {**look_ups_of(method, self._scale), **limits}
        for bucket, limit in limits.items():
            queue = self._queues.get(bucket)
            if queue is None:
                queue = self._queues[bucket] = _Queue(f"{self._workspace}:{bucket}", limit, self._budget, self._tasks)
            try:
                await queue.wait(turn)
            finally:
                if queue.is_idle:
                    self._queues.pop(bucket, None)

    async def pause(self, method: str, channel: str, for_s: float) -> None:
        """Call this for nobody for so long: Slack has said so.

        Slack does not say whether a post has met its channel's limit or the workspace's: where the wait is longer than
        the former ever is, nothing is posted in any channel.
        """
        buckets = list(limits_of(method, channel, self._scale))
        for bucket in buckets if for_s > _MAX_CHANNEL_PAUSE_S else buckets[:1]:
            try:
                await self._budget.pause(f"{self._workspace}:{bucket}", for_s)
            except Exception:  # a Slack handler's border: Slack says so again
                log.exception("budget.failed", bucket=bucket)


class _Queue:
    """Those who wait for one bucket: by priority, then one of each run after the other."""

    def __init__(self, bucket: str, limit: Limit, budget: RateBudget, tasks: set[asyncio.Task[None]]) -> None:
        self._bucket = bucket
        self._limit = limit
        self._budget = budget
        self._tasks = tasks
        self._waiting: list[_Waiter] = []
        self._users = self._number = self._round = 0
        self._rounds: dict[tuple[Priority, str], int] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nobody wants anything of it."""
        return not self._users

    def close(self) -> None:
        """Let those go who wait: nobody is called any more."""
        for waiter in self._waiting:
            waiter.turn.cancel()

    async def wait(self, turn: CallSlot) -> None:
        turn.scope.check()
        self._users += 1
        try:
            if not self._waiting and not await self._take():
                return
            await turn.scope.wait(self._queued(turn))
        finally:
            self._users -= 1

    def _queued(self, turn: CallSlot) -> asyncio.Future[None]:
        turn.scope.check()  # it may have been forgotten while the budget was asked
        future = asyncio.get_running_loop().create_future()
        self._number += 1
        heapq.heappush(self._waiting, _Waiter(turn.priority, self._round_of(turn), self._number, future))
        if len(self._waiting) == 1:
            serving = asyncio.create_task(self._serve())
            self._tasks.add(serving)
            serving.add_done_callback(self._tasks.discard)
        return future

    def _round_of(self, turn: CallSlot) -> int:
        """The first one in which the run has no turn yet."""
        if len(self._rounds) > len(self._waiting) + _MAX_IDLE_ROUNDS:
            self._rounds = {who: last for who, last in self._rounds.items() if last > self._round}
        who = turn.priority, turn.run
        self._rounds[who] = max(self._round, self._rounds.get(who, 0)) + 1
        return self._rounds[who]

    async def _serve(self) -> None:
        """Give out turns for as long as somebody waits."""
        while self._first() is not None:
            wait_s = await self._take()
            if wait_s:
                await asyncio.sleep(min(wait_s, _MAX_SLEEP_S) + _MARGIN_S)
            elif (first := self._first()) is not None:
                heapq.heappop(self._waiting)
                self._round = max(self._round, first.round)
                first.turn.set_result(None)
        self._rounds.clear()

    async def _take(self) -> float:
        try:
            return await self._budget.take(self._bucket, self._limit)
        except Exception:  # a Slack handler's border: nobody may wait for ever, nor call without being let to
            log.exception("budget.failed", bucket=self._bucket)
            return _RETRY_AFTER_S

    def _first(self) -> _Waiter | None:
        """The first one who still waits."""
        while self._waiting and self._waiting[0].turn.done():
            heapq.heappop(self._waiting)
        return self._waiting[0] if self._waiting else None
