"""Slack's rate limits per method and workspace, for the app; people are not limited."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_slack.methods.calls import Json

_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class PerMinute:
    """At most ``calls`` within any 60 s."""

    calls: int

    def meter(self) -> Meter:
        return _Window(self.calls)


@dataclass(frozen=True, slots=True)
class PerChannel:
    """``burst`` calls at once to one channel, then ``per_s`` calls a second."""

    burst: int
    per_s: float

    def meter(self) -> Meter:
        return _Bucket(self.burst, self.per_s)


Limit = PerMinute | PerChannel
Limits = dict[str, tuple[Limit, ...]]

_TIER_2 = (PerMinute(20),)
_TIER_3 = (PerMinute(50),)
_TIER_4 = (PerMinute(100),)
_SPECIAL = (PerMinute(600),)

# docs.slack.dev/apis/web-api/rate-limits; each method's own page names its tier. Slack sometimes allows
# more, without a guarantee; here the limits are exact.
SLACK_LIMITS: Limits = {
    "apps.connections.open": _TIER_3,
    "apps.manifest.export": _TIER_3,
    "agents.sessions.rename": _TIER_3,
    "agents.sessions.setStatus": _TIER_3,
    "api.test": _TIER_4,
    "assistant.threads.setStatus": _SPECIAL,
    "assistant.threads.setSuggestedPrompts": _TIER_4,
    "assistant.threads.setTitle": _TIER_4,
    "auth.test": _SPECIAL,
    "bots.info": _TIER_3,
    "chat.appendStream": _TIER_4,
    "chat.delete": _TIER_3,
    "chat.getPermalink": _SPECIAL,
    "chat.postEphemeral": _TIER_4,
    "chat.postMessage": (PerChannel(burst=5, per_s=1), PerMinute(300)),
    "chat.startStream": _TIER_2,
    "chat.stopStream": _TIER_2,
    "chat.update": _TIER_3,
    "conversations.archive": _TIER_2,
    "conversations.create": _TIER_2,
    "conversations.history": _TIER_3,
    "conversations.info": _TIER_3,
    "conversations.invite": _TIER_3,
    "conversations.join": _TIER_3,
    "conversations.leave": _TIER_3,
    "conversations.list": _TIER_2,
    "conversations.members": _TIER_4,
    "conversations.open": _TIER_3,
    "conversations.replies": _TIER_3,
    "files.completeUploadExternal": _TIER_4,
    "files.delete": _TIER_3,
    "files.getUploadURLExternal": _TIER_4,
    "files.info": _TIER_4,
    "reactions.add": _TIER_3,
    "reactions.get": _TIER_3,
    "reactions.remove": _TIER_2,
    "users.conversations": _TIER_3,
    "users.info": _TIER_4,
    "users.list": _TIER_2,
    "views.open": _TIER_4,
    "views.publish": _TIER_4,
    "views.update": _TIER_4,
}


class Meter(Protocol):
    """Count the calls under one limit."""

    limit: int
    per_s: float

    def wait_s(self, now: float) -> float:
        """Return the seconds until one call is within the limit; 0: now."""

    def count(self, now: float) -> None: ...

    def used(self, now: float) -> int: ...


class RateLimiter:
    """Count calls and refuse those above ``limits`` (None: no limits). ``refused`` counts the 429s by method."""

    def __init__(self, limits: Mapping[str, tuple[Limit, ...]] | None, clock: Callable[[], float]) -> None:
        self.refused: Counter[str] = Counter()
        self._refused_by: Counter[tuple[str, str]] = Counter()
        self._limits = limits or {}
        self._clock = clock
        self._meters: dict[tuple[str, str, str, Limit], Meter] = {}

    def take(self, team: str, method: str, channel: str) -> int:
        """Count a call and return 0, or refuse it and return the whole seconds to wait."""
        now, meters = self._clock(), self._meters_of(team, method, channel)
        wait_s = max((meter.wait_s(now) for meter in meters), default=0.0)
        if wait_s > 0:
            self.refused[method] += 1
            self._refused_by[team, method] += 1
            return max(1, math.ceil(wait_s))
        for meter in meters:
            meter.count(now)
        return 0

    def count(self, team: str, method: str, channel: str) -> None:
        """Count a call without refusing it."""
        now = self._clock()
        for meter in self._meters_of(team, method, channel):
            meter.count(now)

    def snapshot(self) -> list[Json]:
        """Return the current use of each limit with calls; ``channel`` is set for a per-channel limit."""
        now = self._clock()
        return [
            {
                "team": team,
                "method": method,
                "channel": channel,
                "used": meter.used(now),
                "limit": meter.limit,
                "per_s": meter.per_s,
                "refused": self._refused_by[team, method],
            }
            for (team, method, channel, _), meter in self._meters.items()
        ]

    def _meters_of(self, team: str, method: str, channel: str) -> list[Meter]:
        return [
            self._meter(team, method, channel if isinstance(limit, PerChannel) else "", limit)
            for limit in self._limits.get(method, ())
        ]

    def _meter(self, team: str, method: str, channel: str, limit: Limit) -> Meter:
        key = (team, method, channel, limit)
        if key not in self._meters:
            self._meters[key] = limit.meter()
        return self._meters[key]


class _Window:
    def __init__(self, calls: int) -> None:
        self.limit = calls
        self.per_s = _WINDOW_S
        self._times: deque[float] = deque()

    def wait_s(self, now: float) -> float:
        if self.used(now) < self.limit:
            return 0.0
        return self._times[-self.limit] + _WINDOW_S - now

    def count(self, now: float) -> None:
        self._times.append(now)

    def used(self, now: float) -> int:
        while self._times and self._times[0] + _WINDOW_S <= now:
            self._times.popleft()
        return len(self._times)


class _Bucket:
    """A leaky bucket: each call adds one, and ``limit`` is its size."""

    def __init__(self, burst: int, per_s: float) -> None:
        self.limit = burst
        self.per_s = burst / per_s
        self._drains_per_s = per_s
        self._debt = 0.0
        self._at = 0.0

    def wait_s(self, now: float) -> float:
        # 1e-9 tolerates rounding errors.
        over = self._debt_at(now) + 1 - self.limit - 1e-9
        return max(0.0, over) / self._drains_per_s

    def count(self, now: float) -> None:
        self._debt = self._debt_at(now) + 1
        self._at = now

    def used(self, now: float) -> int:
        return math.ceil(self._debt_at(now))

    def _debt_at(self, now: float) -> float:
        return max(0.0, self._debt - (now - self._at) * self._drains_per_s)
