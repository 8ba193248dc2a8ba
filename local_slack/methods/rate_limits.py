"""Slack's rate limits per method and workspace, for the app; people are not limited."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_slack.json_limits import Json

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

# docs.slack.dev/apis/web-api/rate-limits; each method's own page names its tier. Slack sometimes allows
# more, without a guarantee; here the limits are exact.
TIER_2 = (PerMinute(20),)
TIER_3 = (PerMinute(50),)
TIER_4 = (PerMinute(100),)
SPECIAL = (PerMinute(600),)


class MethodRateLimiter:
    """Count calls and refuse those above ``limits`` (None: no limits). ``refused`` counts the 429s by method."""

    def __init__(self, limits: Mapping[str, tuple[Limit, ...]] | None, clock: Callable[[], float]) -> None:
        self.refused: Counter[str] = Counter()
        self._refused_by: Counter[tuple[str, str]] = Counter()
        self._limits = limits or {}
        self._clock = clock
        self._meters: dict[tuple[str, str, str, Limit], Meter] = {}

    def take(self, team: str, method: str, channel: str, *, refuse: bool = True) -> int:
        """Count a call and return 0, or ``refuse`` it and return the whole seconds to wait."""
        now, meters = self._clock(), self._meters_of(team, method, channel)
        wait_s = max((meter.wait_s(now) for meter in meters), default=0.0)
        if refuse and wait_s > 0:
            self.refused[method] += 1
            self._refused_by[team, method] += 1
            return max(1, math.ceil(wait_s))
        for meter in meters:
            meter.count(now)
        return 0

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
        meters = []
        for limit in self._limits.get(method, ()):
            key = (team, method, channel if isinstance(limit, PerChannel) else "", limit)
            if key not in self._meters:
                self._meters[key] = limit.meter()
            meters.append(self._meters[key])
        return meters


class _Window:
    """The times of the calls within the last 60 s."""

    def __init__(self, calls: int) -> None:
        self.limit = calls
        self.per_s = _WINDOW_S
        self._times: deque[float] = deque()

    def wait_s(self, now: float) -> float:
        """Return the seconds until one call is within the limit; 0: now."""
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


Meter = _Window | _Bucket
