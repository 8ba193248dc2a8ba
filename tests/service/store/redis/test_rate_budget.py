"""The budget of Web API calls: of one process, and shared by several in Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis_server import redis_server

from connector.protocols import Limit
from connector.slack_api.rate_limiter import CallSlot, LocalRateBudget, RateLimiter, limits_of
from orchestrator_interactive.storage.redis import RedisClient, RedisScript
from service.store import open_budget
from service.store.redis.rate_budget import RedisBudget

BUCKET = "T0TEAM:chat.update"
LIMIT = Limit(burst=10, per_s=0.5)


class FakeClock:
    def __init__(self):
        self.now_s = 1_700_000_000.0

    def advance(self, seconds):
        self.now_s += seconds


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with the time of a fake clock; `is_running` adds real time, for time limits on I/O."""

    def __init__(self, clock, *, is_running):
        self._clock = clock
        self._is_running = is_running
        super().__init__()

    def time(self):
        return self._clock.now_s + (time.monotonic() if self._is_running else 0)


class FakeTimeClient:
    """A Redis client whose scripts read the fake clock instead of the server's."""

    def __init__(self, client, clock):
        self._client = client
        self._clock = clock

    async def run(self, script, keys, arguments):
        text = script.text.replace("redis.call('TIME')", "{ARGV[#ARGV - 1], ARGV[#ARGV]}")
        assert text != script.text
        whole_s, rest_s = divmod(self._clock.now_s, 1)
        return await self._client.run(RedisScript(text), keys, [*arguments, int(whole_s), int(rest_s * 1e6)])

    async def aclose(self):
        await self._client.aclose()


@asynccontextmanager
async def redis_budget(url, clock):
    client = FakeTimeClient(await RedisClient.open(url), clock)
    yield RedisBudget(client)
    await client.aclose()


def run(test, clock, *, is_running=False):
    with asyncio.Runner(loop_factory=lambda: FakeTimeLoop(clock, is_running=is_running)) as runner:
        return runner.run(test)


@pytest.fixture(params=["local", "redis", "cluster"])
def with_budgets(request):
    """Run a test with two views of one budget and the clock."""
    url = None if request.param == "local" else request.getfixturevalue(f"{request.param}_url")

    def with_budgets(test):
        clock = FakeClock()

        async def run_test():
            if url is None:
                budget = LocalRateBudget()
                await test(budget, budget, clock)
                return
            async with redis_budget(url, clock) as one, redis_budget(url, clock) as two:
                await test(one, two, clock)

        run(run_test(), clock)

    return with_budgets


def test_after_a_burst_the_wait_until_the_next_call_is_returned(with_budgets):
    @with_budgets
    async def test(budget, _, clock):
        assert [await budget.take(BUCKET, LIMIT) for _ in range(10)] == [0] * 10
        assert await budget.take(BUCKET, LIMIT) == pytest.approx(2)
        clock.advance(1.5)
        assert await budget.take(BUCKET, LIMIT) == pytest.approx(0.5)
        clock.advance(0.6)
        assert await budget.take(BUCKET, LIMIT) == 0
        assert await budget.take(BUCKET, LIMIT) > 1


def test_unused_calls_accumulate_up_to_the_burst(with_budgets):
    @with_budgets
    async def test(budget, _, clock):
        assert await budget.take(BUCKET, LIMIT) == 0
        clock.advance(3600)
        waits = [await budget.take(BUCKET, LIMIT) for _ in range(11)]
        assert waits[:10] == [0] * 10
        assert waits[10] > 0


def test_a_pause_blocks_all_calls_and_then_one_is_allowed(with_budgets):
    @with_budgets
    async def test(one, two, clock):
        await one.pause(BUCKET, 30)
        assert await two.take(BUCKET, LIMIT) == pytest.approx(30, abs=0.01)
        clock.advance(29)
        assert await one.take(BUCKET, LIMIT) == pytest.approx(1, abs=0.01)
        clock.advance(1.01)
        assert await two.take(BUCKET, LIMIT) == 0
        assert await one.take(BUCKET, LIMIT) > 1


def test_the_calls_that_are_left_are_reported_and_not_taken(with_budgets):
    @with_budgets
    async def test(one, two, clock):
        assert await one.left(BUCKET, LIMIT) == 10
        for _ in range(4):
            await one.take(BUCKET, LIMIT)
        clock.advance(2)
        assert [await two.left(BUCKET, LIMIT) for _ in range(2)] == pytest.approx([7, 7])
        await one.pause(BUCKET, 30)
        assert await two.left(BUCKET, LIMIT) == 0
        clock.advance(30.01)
        assert await two.left(BUCKET, LIMIT) == pytest.approx(1, abs=0.01)


def test_a_shorter_pause_does_not_end_a_longer_one(with_budgets):
    @with_budgets
    async def test(budget, _, clock):
        await budget.pause(BUCKET, 30)
        await budget.pause(BUCKET, 1)
        clock.advance(2)
        assert await budget.take(BUCKET, LIMIT) == pytest.approx(28, abs=0.01)


def test_buckets_and_workspaces_are_independent(with_budgets):
    @with_budgets
    async def test(budget, *_):
        await budget.pause(BUCKET, 30)
        assert await budget.take("T0TEAM:chat.postMessage:C0GENERAL", LIMIT) == 0
        assert await budget.take("T1OTHER:chat.update", LIMIT) == 0


@dataclass(frozen=True)
class Take:
    client: int
    after_s: float


@dataclass(frozen=True)
class Pause:
    client: int
    for_s: float


# No sum of times is the instant at which one call is available: there, two clocks may round differently.
takes = st.builds(Take, st.integers(0, 1), st.sampled_from((0.0, 0.0, 0.0, 0.3, 1.0, 7.0, 70.0)))
steps = st.one_of(takes, takes, takes, st.builds(Pause, st.integers(0, 1), st.sampled_from((0.55, 5.05, 30.05))))
limits = st.sampled_from([limits_of("chat.update", "C", 1)["chat.update"], Limit(3, 0.7), Limit(1, 2.0)])
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(limits, st.lists(steps, min_size=20, max_size=80))
def test_two_clients_get_what_one_process_gets_and_never_more_than_the_limit(redis_url, limit, script):
    async def test():
        local, taken = LocalRateBudget(), []
        async with redis_budget(redis_url, clock) as one, redis_budget(redis_url, clock) as two:
            for step in script:
                budget = (one, two)[step.client]
                match step:
                    case Pause(_, for_s):
                        await local.pause(bucket, for_s)
                        await budget.pause(bucket, for_s)
                    case Take(_, after_s):
                        clock.advance(after_s)
                        wait_s = await budget.take(bucket, limit)
                        assert wait_s == pytest.approx(await local.take(bucket, limit), abs=0.001)
                        taken += [] if wait_s else [clock.now_s]
        for first in taken:
            assert sum(first <= at < first + 60 for at in taken) <= limit.burst + 60 * limit.per_s + 0.001

    clock, bucket = FakeClock(), f"T0TEAM:{os.urandom(8).hex()}"
    run(test(), clock)


@quick
@given(limits, st.lists(st.integers(0, 1), min_size=5, max_size=40))
def test_a_call_is_allowed_after_the_returned_wait(redis_url, limit, turns):
    async def test():
        async with redis_budget(redis_url, clock) as one, redis_budget(redis_url, clock) as two:
            for turn in turns:
                budget = (one, two)[turn]
                clock.advance(await budget.take(bucket, limit) + 0.001)
                if clock.now_s > start_s + 0.01:
                    assert await budget.take(bucket, limit) <= 1 / limit.per_s

    clock, bucket = FakeClock(), f"T0TEAM:{os.urandom(8).hex()}"
    start_s = clock.now_s
    run(test(), clock)


def test_a_clock_that_is_set_back_blocks_no_call(redis_url):
    async def test():
        async with redis_budget(redis_url, clock) as budget:
            await budget.take(BUCKET, LIMIT)
            await budget.pause("T0TEAM:paused", 30)
            clock.advance(-3600)
            assert await budget.take("T0TEAM:paused", LIMIT) < 31
            assert [await budget.take(BUCKET, LIMIT) for _ in range(9)] == [0] * 9
            assert await budget.take(BUCKET, LIMIT) == pytest.approx(2)
            clock.advance(2.1)
            assert await budget.take(BUCKET, LIMIT) == 0

    clock = FakeClock()
    run(test(), clock)


async def test_two_clients_share_a_bucket_by_the_clock_of_the_server(redis, redis_url):
    async with aclosing(await open_budget(redis_url)) as first, aclosing(await open_budget(redis_url)) as second:
        waits = [await each.take(BUCKET, Limit(5, 0.01)) for each in (first, second) * 4]
        assert waits.count(0) == 5
        await first.pause("T0TEAM:paused", 30)
        assert 29 < await second.take("T0TEAM:paused", LIMIT) <= 30
        for key in redis.ask("KEYS", "*"):
            assert redis.ask("PTTL", key) > 0, "a full bucket expires"
            assert key.startswith(b"budget:{T0TEAM}:")


@pytest.mark.parametrize("method", ["chat.postMessage", "apps.connections.open", "auth.test", "users.info"])
async def test_a_pause_in_one_workspace_does_not_delay_calls_of_another(redis_url, method):
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


async def test_an_sqlite_store_has_no_shared_budget(sqlite_url):
    assert await open_budget(sqlite_url) is None


def test_without_redis_each_process_uses_its_own_budget_and_logs_it_once():
    async def test():
        async with redis_budget(server.url, clock) as budget:
            assert [await budget.take(BUCKET, LIMIT) for _ in range(10)] == [0] * 10
            server.kill()
            with structlog.testing.capture_logs() as lines:
                waits = [await budget.take(BUCKET, LIMIT) for _ in range(11)]
                assert waits.count(0) == 10
                await budget.pause(BUCKET, 30)
                assert await budget.take(BUCKET, LIMIT) == pytest.approx(30, abs=1)
                clock.advance(6)
                assert await budget.take(BUCKET, LIMIT) == pytest.approx(24, abs=1)
                server.start()
                clock.advance(6)
                assert await budget.take(BUCKET, LIMIT) == 0
            assert [line["event"] for line in lines] == ["rate_budget.local", "rate_budget.shared"]

    clock = FakeClock()
    with redis_server() as server:
        run(test(), clock, is_running=True)


async def test_a_hanging_redis_does_not_delay_calls():
    with redis_server() as server:
        async with aclosing(await open_budget(server.url)) as budget:
            os.kill(server.pid, signal.SIGSTOP)
            try:
                async with asyncio.timeout(4):  # far less than the client's own time limit
                    assert [await budget.take(BUCKET, LIMIT) for _ in range(5)] == [0] * 5
            finally:
                os.kill(server.pid, signal.SIGCONT)
