"""The budget of calls to Slack in Redis: replicas that answer in one workspace share it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import structlog

from connector.slack_api.rate_budget import LocalRateBudget
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.redis import RedisClient, RedisScript

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from connector.protocols import Limit

log = structlog.get_logger(__name__)

# An answer waits no longer than this to be counted, and while Redis is away, it is not asked for each call.
_WITHIN_S = 0.3
_ASK_AGAIN_S = 5.0

# A bucket's fields: what is `left` in it `at` a time, in seconds of the server's clock; where Slack has asked for a
# pause, `until` when, and how long that was (`pause`): a clock that is set back must not make it longer.
_CLOCK = """
local function clock()
    local time = redis.call('TIME')
    return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function exact(number)
    return string.format('%.17g', number)
end

local function paused_s(now)
    local found = redis.call('HMGET', KEYS[1], 'until', 'pause')
    local left_s = found[1] and tonumber(found[1]) - now or 0
    return found[1] and left_s <= tonumber(found[2]) + 1 and math.max(left_s, 0) or 0
end
"""

_TAKE = RedisScript(
    _CLOCK
    + """
local burst, per_s, now = tonumber(ARGV[1]), tonumber(ARGV[2]), clock()

-- A bucket that is full again needs no key.
local function full_ms(left)
    return math.ceil((burst - left) / per_s * 1000) + 1000
end

local rest_s = paused_s(now)
if rest_s > 0 then
    return exact(rest_s)
end
local found = redis.call('HMGET', KEYS[1], 'left', 'at')
local at = tonumber(found[2] or now)
local left = math.min(burst, tonumber(found[1] or burst) + math.max(now - at, 0) * per_s)
if left < 1 then
    -- Counted from here on: else a clock that is set back would stop the bucket from filling.
    redis.call('HSET', KEYS[1], 'left', exact(left), 'at', exact(now))
    redis.call('PEXPIRE', KEYS[1], full_ms(left))
    return exact((1 - left) / per_s)
end
redis.call('HSET', KEYS[1], 'left', exact(left - 1), 'at', exact(now))
redis.call('PEXPIRE', KEYS[1], full_ms(left - 1))
return '0'
"""
)

_PAUSE = RedisScript(
    _CLOCK
    + """
local for_s, now = tonumber(ARGV[1]), clock()
if for_s > paused_s(now) then
    local over = exact(now + for_s)
    local left = math.min(1, tonumber(redis.call('HGET', KEYS[1], 'left') or '1'))
    redis.call('HSET', KEYS[1], 'until', over, 'pause', ARGV[1], 'left', exact(left), 'at', over)
    redis.call('PEXPIRE', KEYS[1], math.ceil(for_s * 1000) + tonumber(ARGV[2]))
end
return 0
"""
)
# By then a bucket is full again after a pause, whatever its limit.
_FULL_AGAIN_MS = 10 * 60 * 1000


class RedisBudget:
    """Token buckets in Redis, by its clock; see `connector.protocols.Budget`.

    While Redis is away, each process has a budget of its own: Slack refuses what is too much.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._own = LocalRateBudget()
        self._alone_until_s = 0.0

    @classmethod
    async def open(cls, url: str) -> Self:
        """The budget that lies beside the store of this URL.

        Raises:
            StoreError: it cannot be used.
        """
        return cls(await RedisClient.open(url))

    async def take(self, bucket: str, limit: Limit) -> float:
        """Take one call out of a bucket: 0; where there is none in it, after how many seconds there may be."""
        said = await self._said(_TAKE, bucket, limit.burst, limit.per_s)
        return await self._own.take(bucket, limit) if said is None else float(said)

    async def pause(self, bucket: str, for_s: float) -> None:
        """Let nobody take anything out of a bucket for so long, and begin it with one call then, if it had one."""
        await self._own.pause(bucket, for_s)
        await self._said(_PAUSE, bucket, for_s, _FULL_AGAIN_MS)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _said(self, script: RedisScript, bucket: str, *arguments: float) -> Any:
        """What Redis says; `None`: it is away."""
        now_s = asyncio.get_running_loop().time()
        was_alone = self._alone_until_s > 0
        if was_alone:
            if now_s < self._alone_until_s:
                return None
            self._alone_until_s = now_s + _ASK_AGAIN_S  # one asks, nobody else waits
        try:
            async with asyncio.timeout(_WITHIN_S):
                said = await self._client.run(script, _keys(bucket), arguments)
        except (StoreError, TimeoutError) as e:
            if not self._alone_until_s:
                log.warning("budget.alone", problem=str(e) or "Redis does not answer in time.")
            self._alone_until_s = asyncio.get_running_loop().time() + _ASK_AGAIN_S
            return None
        if was_alone:
            self._alone_until_s = 0.0
            log.info("budget.shared_again")
        return said


def _keys(bucket: str) -> Sequence[str]:
    """What stands in braces decides where it lies on a cluster: a workspace's buckets lie together."""
    workspace, _, rest = bucket.partition(":")
    return [f"budget:{{{workspace}}}:{rest}"]
