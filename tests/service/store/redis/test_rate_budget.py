"""What is left of the calls that Slack allows: a process alone, and several that share it in Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis_server import redis_server

from connector.protocols import Limit
from connector.slack_api.rate_budget import LocalRateBudget
from connector.slack_api.rate_limiter import CallSlot, RateLimiter
from connector.slack_api.tiers import limits_of
from orchestrator_interactive.storage.redis import RedisClient, RedisScript
from service.store import open_budget
from service.store.redis.rate_budget import RedisBudget

BUCKET = "T0TEAM:chat.update"
LIMIT = Limit(burst=10, per_s=0.5)


@dataclass
class Clock:
    now_s: float = 1_700_000_000.0

    def passes(self, seconds):
        self.now_s += seconds


class _Loop(asyncio.SelectorEventLoop):
    """An event loop by whose clock only that time passes that a test lets pass."""

    def __init__(self, clock):
        self._clock = clock
        super().__init__()

    def time(self):
        return self._clock.now_s


class _PassingLoop(_Loop):
    """The same, where time passes by itself, too: who waits for the outside must be able to give up."""

    def time(self):
        return super().time() + time.monotonic()


@dataclass
class _Client:
    """A client of Redis whose server goes by the test's clock."""

    client: RedisClient
    clock: Clock
    keys: list = field(default_factory=list)

    async def run(self, script, keys, arguments):
        text = script.text.replace("redis.call('TIME')", "{ARGV[#ARGV - 1], ARGV[#ARGV]}")
        assert text != script.text
        whole_s, rest_s = divmod(self.clock.now_s, 1)
        self.keys += keys
        return await self.client.run(RedisScript(text), keys, [*arguments, int(whole_s), int(rest_s * 1e6)])

    async def aclose(self):
        await self.client.aclose()


def run(test, clock, loop=_Loop):
    with asyncio.Runner(loop_factory=lambda: loop(clock)) as runner:
        return runner.run(test)


@pytest.fixture(params=["own", "redis", "cluster"])
def opened(request):
    """Opens budgets that are one."""
    url = None if request.param == "own" else request.getfixturevalue(f"{request.param}_url")
    own = LocalRateBudget()

    @asynccontextmanager
    async def budget(clock):
        if url is None:
            yield own
            return
        client = _Client(await RedisClient.open(url), clock)
        yield RedisBudget(client)
        await client.aclose()

    return budget


def test_a_burst_is_granted_at_once_and_the_next_call_is_told_how_long_to_wait(opened):
    async def test():
        async with opened(clock) as budget:
            assert [await budget.take(BUCKET, LIMIT) for _ in range(10)] == [0] * 10
            assert await budget.take(BUCKET, LIMIT) == pytest.approx(2)
            clock.passes(1.5)
            assert await budget.take(BUCKET, LIMIT) == pytest.approx(0.5)
            clock.passes(0.6)
            assert await budget.take(BUCKET, LIMIT) == 0
            assert await budget.take(BUCKET, LIMIT) > 1

    run(test(), clock := Clock())


def test_what_is_not_used_is_saved_up_to_the_burst_and_no_further(opened):
    async def test():
        async with opened(clock) as budget:
            assert await budget.take(BUCKET, LIMIT) == 0
            clock.passes(3600)
            granted = [await budget.take(BUCKET, LIMIT) for _ in range(11)]
            assert granted[:10] == [0] * 10
            assert granted[10] > 0

    run(test(), clock := Clock())


def test_during_a_pause_nobody_is_granted_anything_and_then_one_call_is(opened):
    async def test():
        async with opened(clock) as budget, opened(clock) as other:
            await budget.pause(BUCKET, 30)
            assert await other.take(BUCKET, LIMIT) == pytest.approx(30, abs=0.01)
            clock.passes(29)
            assert await budget.take(BUCKET, LIMIT) == pytest.approx(1, abs=0.01)
            clock.passes(1.01)
            assert await other.take(BUCKET, LIMIT) == 0
            assert await budget.take(BUCKET, LIMIT) > 1

    run(test(), clock := Clock())


def test_a_shorter_pause_does_not_end_a_longer_one(opened):
    async def test():
        async with opened(clock) as budget:
            await budget.pause(BUCKET, 30)
            await budget.pause(BUCKET, 1)
            clock.passes(2)
            assert await budget.take(BUCKET, LIMIT) == pytest.approx(28, abs=0.01)

    run(test(), clock := Clock())


def test_each_bucket_and_each_workspace_has_its_own(opened):
    async def test():
        async with opened(clock) as budget:
            await budget.pause(BUCKET, 30)
            assert await budget.take("T0TEAM:chat.postMessage:C0GENERAL", LIMIT) == 0
            assert await budget.take("T1OTHER:chat.update", LIMIT) == 0

    run(test(), clock := Clock())


@dataclass(frozen=True)
class Take:
    client: int
    after_s: float


@dataclass(frozen=True)
class Pause:
    client: int
    for_s: float


# No sum of these is the instant at which there is just one call again: there, two clocks may round differently.
takes = st.builds(Take, st.integers(0, 1), st.sampled_from((0.0, 0.0, 0.0, 0.3, 1.0, 7.0, 70.0)))
steps = st.one_of(takes, takes, takes, st.builds(Pause, st.integers(0, 1), st.sampled_from((0.55, 5.05, 30.05))))
limits = st.sampled_from([limits_of("chat.update", "C", 1)["chat.update"], Limit(3, 0.7), Limit(1, 2.0)])
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(limits, st.lists(steps, min_size=20, max_size=80))
def test_two_clients_are_granted_what_one_process_is_and_in_no_minute_more_than_the_limit(redis_url, limit, script):
    async def test():
        own, granted = LocalRateBudget(), []
        clients = [RedisBudget(_Client(await RedisClient.open(redis_url), clock)) for _ in range(2)]
        for step in script:
            match step:
                case Pause(client, for_s):
                    await own.pause(bucket, for_s)
                    await clients[client].pause(bucket, for_s)
                case Take(client, after_s):
                    clock.passes(after_s)
                    wait_s = await clients[client].take(bucket, limit)
                    assert wait_s == pytest.approx(await own.take(bucket, limit), abs=0.001)
                    granted += [] if wait_s else [clock.now_s]
        for first in granted:
            assert sum(first <= at < first + 60 for at in granted) <= limit.burst + 60 * limit.per_s + 0.001
        for client in clients:
            await client.aclose()

    clock = Clock()
    bucket = f"T0TEAM:{os.urandom(8).hex()}"
    run(test(), clock)


@quick
@given(limits, st.lists(st.integers(0, 1), min_size=5, max_size=40))
def test_who_waits_as_long_as_it_is_told_is_granted_the_call(redis_url, limit, turns):
    async def test():
        clients = [RedisBudget(_Client(await RedisClient.open(redis_url), clock)) for _ in range(2)]
        for client in turns:
            clock.passes(await clients[client].take(bucket, limit) + 0.001)
            if clock.now_s > start + 0.01:
                assert await clients[client].take(bucket, limit) <= 1 / limit.per_s
        for client in clients:
            await client.aclose()

    clock = Clock()
    start = clock.now_s
    bucket = f"T0TEAM:{os.urandom(8).hex()}"
    run(test(), clock)


def test_a_clock_that_is_set_back_stops_nobody(redis_url):
    async def test():
        client = _Client(await RedisClient.open(redis_url), clock)
        budget = RedisBudget(client)
        await budget.take(BUCKET, LIMIT)
        await budget.pause("T0TEAM:paused", 30)
        clock.passes(-3600)
        assert await budget.take("T0TEAM:paused", LIMIT) < 31
        assert [await budget.take(BUCKET, LIMIT) for _ in range(9)] == [0] * 9
        assert await budget.take(BUCKET, LIMIT) == pytest.approx(2)
        clock.passes(2.1)
        assert await budget.take(BUCKET, LIMIT) == 0
        await client.aclose()

    run(test(), clock := Clock())


async def test_by_the_servers_own_clock_two_clients_share_one_bucket(redis, redis_url):
    first, second = await open_budget(redis_url), await open_budget(redis_url)
    granted = [await each.take(BUCKET, Limit(5, 0.01)) for each in (first, second) * 4]
    assert granted.count(0) == 5
    await first.pause("T0TEAM:paused", 30)
    assert 29 < await second.take("T0TEAM:paused", LIMIT) <= 30
    for key in redis.ask("KEYS", "*"):
        assert redis.ask("PTTL", key) > 0, "what is full again is forgotten"
        assert key.startswith(b"budget:{T0TEAM}:")
    await first.aclose()
    await second.aclose()


@pytest.mark.parametrize("method", ["chat.postMessage", "apps.connections.open", "auth.test", "users.info"])
async def test_a_pause_in_one_workspace_holds_up_no_call_of_another(redis_url, method):
    async with (
        aclosing(await open_budget(redis_url)) as first,
        aclosing(await open_budget(redis_url)) as second,
        RateLimiter("T1", first) as paused,
        RateLimiter("T2", second) as other,
    ):
        await paused.pause(method, "C1", 60)
        waiting = asyncio.create_task(paused.wait(method, "C1", CallSlot()))
        async with asyncio.timeout(5):
            for _ in range(3):
                await other.wait(method, "C1", CallSlot())
        assert not waiting.done()
        waiting.cancel()


async def test_who_has_a_file_shares_with_nobody(sqlite_url):
    assert await open_budget(sqlite_url) is None


def test_while_redis_is_away_each_process_goes_on_alone_and_says_so_once():
    async def test():
        budget = RedisBudget(_Client(await RedisClient.open(server.url), clock))
        assert [await budget.take(BUCKET, LIMIT) for _ in range(10)] == [0] * 10
        server.kill()
        with structlog.testing.capture_logs() as said:
            alone = [await budget.take(BUCKET, LIMIT) for _ in range(11)]
            assert alone.count(0) == 10, "it has a bucket of its own"
            await budget.pause(BUCKET, 30)
            assert await budget.take(BUCKET, LIMIT) == pytest.approx(30, abs=1)
            clock.passes(6)
            assert await budget.take(BUCKET, LIMIT) == pytest.approx(24, abs=1)
            server.start()
            clock.passes(6)
            assert await budget.take(BUCKET, LIMIT) == 0
        assert [line["event"] for line in said] == ["rate_budget.local", "rate_budget.shared"]
        await budget.aclose()

    clock = Clock()
    with redis_server() as server:
        run(test(), clock, _PassingLoop)


async def test_a_redis_that_does_not_answer_holds_nobody_up():
    with redis_server() as server:
        budget = await open_budget(server.url)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(4):  # far less than the client's own patience
                assert [await budget.take(BUCKET, LIMIT) for _ in range(5)] == [0] * 5
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await budget.aclose()
