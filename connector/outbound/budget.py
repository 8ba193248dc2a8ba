"""What is left of the calls that Slack allows, where only this process makes any."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connector.protocols import Limit


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class OwnBudget:
    """Token buckets in memory; see `connector.protocols.Budget`."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}

    async def take(self, bucket: str, limit: Limit) -> float:
        """Take one call out of a bucket: 0; where there is none in it, after how many seconds there may be."""
        now_s = asyncio.get_running_loop().time()
        known = self._buckets.setdefault(bucket, _Bucket(limit.burst, now_s))
        passed_s = now_s - known.at_s
        if passed_s < 0:
            return -passed_s
        known.left, known.at_s = min(limit.burst, known.left + passed_s * limit.per_s), now_s
        if known.left < 1:
            return (1 - known.left) / limit.per_s
        known.left -= 1
        return 0.0

    async def pause(self, bucket: str, for_s: float) -> None:
        """Let nobody take anything out of a bucket for so long, and begin it with one call then, if it had one."""
        until_s = asyncio.get_running_loop().time() + for_s
        known = self._buckets.get(bucket)
        if known is None or known.at_s < until_s:
            self._buckets[bucket] = _Bucket(1.0 if known is None else min(1.0, known.left), until_s)
