"""Slack's rate limits per method and workspace, the share that the rate limiter uses, and its budget in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from connector.protocols import Limit

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
    "agents.sessions.rename": _TIER_3,
    "agents.sessions.setStatus": _TIER_3,
    "apps.connections.open": _TIER_3,
    "apps.manifest.export": _TIER_3,
    "assistant.threads.setStatus": _SPECIAL,
    "assistant.threads.setTitle": _TIER_4,
    "auth.test": _SPECIAL,
    "chat.delete": _TIER_3,
    "chat.postEphemeral": _TIER_4,
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
}
# Largest share of a method's calls for look-ups: the rest is for authors, access checks and the bot's own posts.
_LOOK_UPS: Final = 0.5
# Number of buckets at which the full ones are dropped.
_MAX_BUCKETS: Final = 200
# About one message per second and channel, with a small burst.
_POSTS_IN_A_CHANNEL: Final = Limit(4, 0.94)


def limits_of(method: str, channel: str, scale: float, *, is_look_up: bool = False) -> dict[str, Limit]:
    """Return the buckets that a call takes a token from, with their limits, the narrowest first."""
    limit = _BY_METHOD.get(method, _TIER_2)
    buckets = {method: limit}
    if method == "chat.postMessage":
        buckets = {f"{method}:{channel}": _POSTS_IN_A_CHANNEL, **buckets}
    if is_look_up:
        buckets = {f"{method}:look-ups": Limit(limit.burst * _LOOK_UPS, limit.per_s * _LOOK_UPS), **buckets}
    return {name: Limit(max(1.0, each.burst * scale), each.per_s * scale) for name, each in buckets.items()}


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
            self._drop_full(now_s)
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

    async def pause(self, bucket: str, for_s: float) -> None:
        """Grant no tokens from a bucket for this time; afterwards it holds at most one token."""
        until_s = asyncio.get_running_loop().time() + for_s
        known = self._buckets.get(bucket)
        if known is None or known.at_s < until_s:
            left, limit = (1.0, None) if known is None else (min(1.0, known.left), known.limit)
            self._buckets[bucket] = _Bucket(left, until_s, limit)

    def _drop_full(self, now_s: float) -> None:
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now_s)}
        self._drop_at = max(_MAX_BUCKETS, 2 * len(self._buckets))
