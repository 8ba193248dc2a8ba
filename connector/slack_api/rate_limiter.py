"""Schedule Web API calls within Slack's rate limits, by priority and fairly across runs."""

from __future__ import annotations

import asyncio
import heapq
from contextvars import Context
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from connector.protocols import Limit
from connector.slack_api.errors import error_boundary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from connector.protocols import RateBudget

# Upper bound of one sleep: other processes use the same budget, and the store's clock may be set.
_MAX_SLEEP_S = 5.0
# A computed wait may end slightly too early.
_MARGIN_S = 0.001
# Wait after an error of the budget.
_RETRY_AFTER_S = 1.0
# A channel's own limit lasts a second or two; a longer `Retry-After` is the workspace's limit.
_MAX_CHANNEL_PAUSE_S = 5.0
# Entries kept for runs without a waiting call.
_MAX_IDLE_ROUNDS = 100


# Share of the limit per minute: calls that are sent evenly may arrive closer together.
_USED: Final = 0.94
# Burst as a share of the limit. A status is edited throughout its run, so it gets a steady rate and a small burst.
_IN_BURSTS: Final = 0.5
_STEADY: Final = 0.1
_LOOKED_UP: Final = 0.2


def _per_minute(calls: float, at_once: float = _IN_BURSTS) -> Limit:
    """Return a limit under which burst and refill of any minute add up to less than `calls`."""
    return Limit(calls * at_once, calls * (_USED - at_once) / 60)


_SPECIAL = _per_minute(600)
_TIER_4 = _per_minute(100)
_TIER_3 = _per_minute(50)
_TIER_2 = _per_minute(20)

# Slack's tiers, https://docs.slack.dev/apis/web-api/rate-limits. Methods that are not listed count as tier 2.
_BY_METHOD: Final = {
    "agents.sessions.setStatus": _TIER_3,
    "apps.connections.open": _TIER_3,
    "apps.manifest.export": _TIER_3,
    "assistant.threads.setStatus": _SPECIAL,
    "assistant.threads.setSuggestedPrompts": _TIER_3,
    "assistant.threads.setTitle": _TIER_3,
    "auth.test": _SPECIAL,
    "chat.appendStream": _per_minute(100, _STEADY),
    "chat.delete": _TIER_3,
    "chat.postEphemeral": _TIER_4,
    "chat.startStream": _TIER_2,
    "chat.stopStream": _TIER_2,
    "chat.postMessage": _per_minute(300, _STEADY),
    "chat.update": _per_minute(50, _STEADY),
    "conversations.history": _TIER_3,
    # A takeover of many runs looks up their posts for minutes: a steady rate is worth more than a burst.
    "conversations.replies": _per_minute(50, _LOOKED_UP),
    "files.completeUploadExternal": _TIER_4,
    "files.getUploadURLExternal": _TIER_4,
    "reactions.add": _TIER_3,
    "reactions.remove": _TIER_2,
    "users.info": _TIER_4,
    "views.open": _TIER_4,
    "views.publish": _TIER_4,
}
# Largest share of a method's calls for look-ups: the rest is for authors, access checks and the bot's own posts.
_LOOK_UPS: Final = 0.5
# Number of buckets at which the full ones are dropped.
_MAX_BUCKETS: Final = 200
# About one message per second and channel, with a small burst.
_POSTS_IN_A_CHANNEL: Final = Limit(4, 0.94)


def limits_of(
    method: str,
    channel: str,
    scale: float,
    special: Mapping[str, Limit] = MappingProxyType({}),
    *,
    is_look_up: bool = False,
) -> dict[str, Limit]:
    """Return the buckets that a call takes a token from, with their limits, the narrowest first.

    `special` are limits of methods that differ from Slack's usual ones.
    """
    limit = special.get(method) or _BY_METHOD.get(method, _TIER_2)
    buckets = {method: limit}
    if method == "chat.postMessage":
        buckets = {f"{method}:{channel}": _POSTS_IN_A_CHANNEL, **buckets}
    if is_look_up:
        buckets = {f"{method}:look-ups": Limit(limit.burst * _LOOK_UPS, limit.per_s * _LOOK_UPS), **buckets}
    return {name: Limit(max(1.0, each.burst * scale), each.per_s * scale) for name, each in buckets.items()}


class CallCancelled(Exception):  # noqa: N818 - a fact about the call
    """The call was cancelled before it was sent."""


class Priority(IntEnum):
    """Order of waiting calls; lower values go first."""

    ANSWER = 0
    # Profiles of authors, for names and access checks.
    PERSON = 1
    STATUS = 2
    REACTION = 3
    CLEANUP = 4
    # Calls that users can cause without bound: they also get only a share of the limit.
    LOOK_UP = 5


class CancelScope:
    """Cancels the calls that carry it, as long as they have not been sent."""

    def __init__(self) -> None:
        self.is_cancelled = False
        # The calls that wait.
        self.waiting: set[asyncio.Future[None]] = set()

    def cancel(self) -> None:
        """Cancel the calls; those that wait raise `CallCancelled` at once."""
        self.is_cancelled = True
        for granted in self.waiting:
            if not granted.done():
                granted.set_exception(CallCancelled())

    def check(self) -> None:
        """Raise `CallCancelled` if the calls are cancelled."""
        if self.is_cancelled:
            raise CallCancelled


@dataclass(frozen=True, slots=True)
class CallSlot:
    """How a call queues for the rate limit.

    Args:
        run: the run it belongs to; runs alternate within a priority.
        scope: cancels the call while it waits.
    """

    priority: Priority = Priority.ANSWER
    run: str = ""
    scope: CancelScope = field(default_factory=CancelScope)


@dataclass(order=True, slots=True)
class _Waiter:
    priority: Priority
    round: int
    number: int
    granted: asyncio.Future[None] = field(compare=False)


class RateLimiter:
    """Grants calls within Slack's rate limits of one workspace.

    Args:
        workspace: id of the workspace; processes share the budget under this id.
        budget: the token buckets; `None`: in memory, for a single process.
        scale: a factor on Slack's limits.
    """

    def __init__(
        self,
        workspace: str,
        budget: RateBudget | None = None,
        scale: float = 1.0,
        special: Mapping[str, Limit] = MappingProxyType({}),
    ) -> None:
        self._workspace = workspace
        self._budget = budget or LocalRateBudget()
        self._scale = scale
        self._special = special
        self._queues: dict[str, _Queue] = {}
        # Methods that were called.
        self._methods: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for waiter in [each for queue in self._queues.values() for each in queue.waiting]:
            waiter.granted.cancel()

    async def wait(self, method: str, channel: str, slot: CallSlot) -> None:
        """Wait until the call may be made.

        Raises:
            CallCancelled: it was cancelled first.
        """
        limits = limits_of(method, channel, self._scale, self._special, is_look_up=slot.priority is Priority.LOOK_UP)
        self._methods.add(method)
        for bucket, limit in limits.items():
            queue = self._queues.get(bucket)
            if queue is None:
                queue = self._queues[bucket] = _Queue(f"{self._workspace}:{bucket}", limit, self._budget, self._tasks)
            try:
                await queue.wait(slot)
            finally:
                if not queue.users:
                    self._queues.pop(bucket, None)

    async def left(self) -> dict[str, float]:
        """Return how many calls of each method used so far the workspace grants at once now."""
        limits = {method: limits_of(method, "", self._scale, self._special)[method] for method in sorted(self._methods)}
        asked = [self._budget.left(f"{self._workspace}:{method}", limit) for method, limit in limits.items()]
        return dict(zip(limits, await asyncio.gather(*asked), strict=True))

    async def pause(self, method: str, channel: str, for_s: float) -> None:
        """Grant no calls of a method for the time of a `Retry-After`, in seconds.

        Slack does not report whether a post exceeded the limit of its channel or of the workspace. If the wait is
        longer than a channel's limit lasts, posts to all channels pause.
        """
        buckets = list(limits_of(method, channel, self._scale, self._special))
        for bucket in buckets if for_s > _MAX_CHANNEL_PAUSE_S else buckets[:1]:
            with error_boundary("rate_budget.failed", bucket=bucket):  # Slack repeats the rate limit
                await self._budget.pause(f"{self._workspace}:{bucket}", for_s)


class _Queue:
    """Calls that wait for one bucket: by priority, then round-robin over the runs."""

    def __init__(self, bucket: str, limit: Limit, budget: RateBudget, tasks: set[asyncio.Task[None]]) -> None:
        self._bucket = bucket
        self._limit = limit
        self._budget = budget
        self._tasks = tasks
        self.waiting: list[_Waiter] = []
        # Calls that wait or take a token.
        self.users = 0
        self._number = self._round = 0
        self._rounds: dict[tuple[Priority, str], int] = {}

    async def wait(self, slot: CallSlot) -> None:
        slot.scope.check()
        self.users += 1
        try:
            if not self.waiting and not await self._take():
                return
            slot.scope.check()  # it may have been cancelled while the budget was awaited
            granted = asyncio.get_running_loop().create_future()
            self._number += 1
            if len(self._rounds) > len(self.waiting) + _MAX_IDLE_ROUNDS:
                self._rounds = {who: last for who, last in self._rounds.items() if last > self._round}
            who = slot.priority, slot.run
            self._rounds[who] = round_ = max(self._round, self._rounds.get(who, 0)) + 1  # the first without such a call
            heapq.heappush(self.waiting, _Waiter(slot.priority, round_, self._number, granted))
            if len(self.waiting) == 1:
                serving = asyncio.create_task(self._serve(), context=Context())  # it serves all runs
                self._tasks.add(serving)
                serving.add_done_callback(self._tasks.discard)
            slot.scope.waiting.add(granted)
            granted.add_done_callback(slot.scope.waiting.discard)
            await granted
        finally:
            self.users -= 1

    async def _serve(self) -> None:
        """Grant calls until none waits."""
        while self._first() is not None:
            wait_s = await self._take()
            if wait_s:
                await asyncio.sleep(min(wait_s, _MAX_SLEEP_S) + _MARGIN_S)
            elif (first := self._first()) is not None:
                heapq.heappop(self.waiting)
                self._round = max(self._round, first.round)
                first.granted.set_result(None)
        self._rounds.clear()

    async def _take(self) -> float:
        with error_boundary("rate_budget.failed", bucket=self._bucket):
            return await self._budget.take(self._bucket, self._limit)
        return _RETRY_AFTER_S  # so that no call waits for ever or goes unlimited

    def _first(self) -> _Waiter | None:
        """Return the first call that still waits."""
        while self.waiting and self.waiting[0].granted.done():
            heapq.heappop(self.waiting)
        return self.waiting[0] if self.waiting else None


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float
    limit: Limit | None = None

    def is_full(self, now_s: float) -> bool:
        """Return whether the bucket equals an unused one."""
        limit, passed_s = self.limit, now_s - self.at_s
        return limit is not None and passed_s >= 0 and self.left + passed_s * limit.per_s >= limit.burst


class LocalRateBudget:
    """Token buckets in memory; see `connector.protocols.RateBudget`."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._drop_at = _MAX_BUCKETS

    async def take(self, bucket: str, limit: Limit) -> float:
        """Take one token from a bucket. Returns 0.0, or the seconds until a token may be available."""
        now_s = asyncio.get_running_loop().time()
        if len(self._buckets) >= self._drop_at:
            self._buckets = {name: each for name, each in self._buckets.items() if not each.is_full(now_s)}
            self._drop_at = max(_MAX_BUCKETS, 2 * len(self._buckets))
        known = self._buckets.setdefault(bucket, _Bucket(limit.burst, now_s))
        known.limit = limit
        passed_s = now_s - known.at_s
        if passed_s < 0:
            return -passed_s
        known.left, known.at_s = min(limit.burst, known.left + passed_s * limit.per_s), now_s
        if known.left < 1:
            return (1 - known.left) / limit.per_s
        known.left -= 1
        return 0.0

    async def left(self, bucket: str, limit: Limit) -> float:
        """Return the tokens in a bucket."""
        known = self._buckets.get(bucket)
        if known is None:
            return limit.burst
        passed_s = asyncio.get_running_loop().time() - known.at_s
        return min(limit.burst, known.left + passed_s * limit.per_s) if passed_s >= 0 else 0.0

    async def pause(self, bucket: str, for_s: float) -> None:
        """Grant no tokens from a bucket for this time; afterwards it holds at most one token."""
        until_s = asyncio.get_running_loop().time() + for_s
        known = self._buckets.get(bucket)
        if known is None or known.at_s < until_s:
            left, limit = (1.0, None) if known is None else (min(1.0, known.left), known.limit)
            self._buckets[bucket] = _Bucket(left, until_s, limit)
