"""The rate budget in Redis, shared by replicas that serve the same workspace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import structlog

from connector.slack_api.rate_limiter import LocalRateBudget
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.redis import RedisClient, RedisScript

if TYPE_CHECKING:
    from typing import Any

    from connector.protocols import Limit

log = structlog.get_logger(__name__)

# Timeout of a request to Redis, and the interval of attempts while Redis is unreachable.
_WITHIN_S = 0.3
_ASK_AGAIN_S = 5.0

# A bucket's fields: the tokens `left` in it `at` a time, in seconds of the server's clock; after a `Retry-After`, the
# end of the pause (`until`) and its duration (`pause`), so that a clock that is set back does not extend it.
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

-- The key expires when the bucket is full.
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
    -- Store the current time: otherwise a clock that is set back would stop the refill.
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
_LEFT = RedisScript(
    _CLOCK
    + """
local burst, per_s, now = tonumber(ARGV[1]), tonumber(ARGV[2]), clock()
if paused_s(now) > 0 then
    return '0'
end
local found = redis.call('HMGET', KEYS[1], 'left', 'at')
return exact(math.min(burst, tonumber(found[1] or burst) + math.max(now - tonumber(found[2] or now), 0) * per_s))
"""
)
# Upper bound of the time to refill any bucket after a pause.
_FULL_AGAIN_MS = 10 * 60 * 1000


class RedisBudget:
    """Token buckets in Redis, by the server's clock; implements `connector.protocols.RateBudget`.

    While Redis is unreachable, each process uses a local budget; Slack rejects excess calls.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._local = LocalRateBudget()
        self._local_until_s = 0.0

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(await RedisClient.open(url))

    async def take(self, bucket: str, limit: Limit) -> float:
        """Take one token from a bucket and return 0; if it is empty, return the seconds until the next token."""
        wait_s = await self._run(_TAKE, bucket, limit.burst, limit.per_s)
        return await self._local.take(bucket, limit) if wait_s is None else float(wait_s)

    async def left(self, bucket: str, limit: Limit) -> float:
        """Return the tokens in a bucket."""
        left = await self._run(_LEFT, bucket, limit.burst, limit.per_s)
        return await self._local.left(bucket, limit) if left is None else float(left)

    async def pause(self, bucket: str, for_s: float) -> None:
        """Block a bucket for `for_s` seconds; afterwards it has at most one token."""
        await self._local.pause(bucket, for_s)
        await self._run(_PAUSE, bucket, for_s, _FULL_AGAIN_MS)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _run(self, script: RedisScript, bucket: str, *arguments: float) -> Any:
        """Run a script; return `None` if Redis is unreachable."""
        now_s = asyncio.get_running_loop().time()
        was_local = self._local_until_s > 0
        if was_local:
            if now_s < self._local_until_s:
                return None
            self._local_until_s = now_s + _ASK_AGAIN_S  # only this call tries Redis
        try:
            # The hash tag in braces puts a workspace's buckets into one cluster slot.
            workspace, _, rest = bucket.partition(":")
            async with asyncio.timeout(_WITHIN_S):
                result = await self._client.run(script, [f"budget:{{{workspace}}}:{rest}"], arguments)
        except (StoreError, TimeoutError) as e:
            if not self._local_until_s:
                log.warning("rate_budget.local", problem=str(e) or "Redis does not answer in time.")
            self._local_until_s = asyncio.get_running_loop().time() + _ASK_AGAIN_S
            return None
        if was_local:
            self._local_until_s = 0.0
            log.info("rate_budget.shared")
        return result
