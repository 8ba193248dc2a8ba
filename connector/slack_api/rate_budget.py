"""The rate limit budget of a single process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connector.protocols import Limit

# Number of buckets at which the full ones are dropped.
_MAX_BUCKETS = 200


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
