"""The order of calls and their rate, in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import in_virtual_time

from connector.slack_api.rate_limiter import CallCancelled, CallSlot, LocalRateBudget, Priority, RateLimiter, limits_of

# Calls that Slack allows in a minute.
TIERS = {"reactions.remove": 20, "chat.update": 50, "reactions.add": 50, "users.info": 100, "chat.postMessage": 300}
MINUTE_S = 60.0


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Calls:
    """Calls through one rate limiter, and the times of their turns."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.order: list[str] = []
        self.at_s: defaultdict[str, list[float]] = defaultdict(list)

    async def call(self, name: str, method: str, slot: CallSlot | None = None, channel: str = "C1") -> None:
        await self.limiter.wait(method, channel, slot or CallSlot())
        self.order.append(name)
        self.at_s[method].append(now_s())


@asynccontextmanager
async def calls(exhausted: str = "", **options):
    """Run a rate limiter; the calls that may go at once are used up for one method."""
    async with RateLimiter("T", **options) as limiter:
        made = Calls(limiter)
        for limit in limits_of(exhausted, "C1", 1).values() if exhausted else ():
            for _ in range(int(limit.burst)):
                await made.call("", exhausted)
        made.order.clear()
        yield made


@pytest.mark.parametrize("method", TIERS)
@settings(max_examples=8, deadline=None)
@given(gaps_s=st.lists(st.sampled_from([0.0, 0.0, 0.1, 1.0, 7.0]), min_size=1, max_size=150))
def test_no_minute_has_more_calls_than_slack_allows(method, gaps_s):
    @in_virtual_time
    async def run():
        async with calls() as made, asyncio.TaskGroup() as tasks:
            for number, gap_s in enumerate(gaps_s):
                tasks.create_task(made.call("", method, CallSlot(run=str(number)), f"C{number}"))
                await asyncio.sleep(gap_s)
        times_s = made.at_s[method]
        assert len(times_s) == len(gaps_s)
        assert max(sum(begin <= at_s < begin + MINUTE_S for at_s in times_s) for begin in times_s) <= TIERS[method]

    run()


@in_virtual_time
async def test_posts_in_one_channel_have_a_rate_of_one_a_second_and_delay_no_other_channel():
    async with calls() as made, asyncio.TaskGroup() as tasks:
        for _ in range(24):
            tasks.create_task(made.call("busy", "chat.postMessage"))
        await asyncio.sleep(1)
        await made.call("other", "chat.postMessage", channel="C2")
        assert now_s() == pytest.approx(1, abs=0.01)
    assert 20 <= now_s() < 24


@in_virtual_time
async def test_calls_go_by_their_priority_and_then_in_the_order_of_their_requests():
    async with calls("reactions.remove") as made, asyncio.TaskGroup() as tasks:
        for number in range(2):
            for priority in reversed(Priority):
                slot = CallSlot(priority, f"run {number}")
                tasks.create_task(made.call(f"{priority.name} {number}", "reactions.remove", slot))
    assert made.order == [f"{priority.name} {number}" for priority in Priority for number in range(2)]


@in_virtual_time
async def test_a_run_with_many_calls_does_not_delay_the_others():
    async with calls("chat.update") as made, asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(made.call("many", "chat.update", CallSlot(run="many")))
        await asyncio.sleep(0.1)
        for name in ("one", "two"):
            tasks.create_task(made.call(name, "chat.update", CallSlot(run=name)))
    assert set(made.order[:3]) == {"many", "one", "two"}


@in_virtual_time
async def test_a_queued_call_is_cancelled_at_once_and_takes_no_turn():
    async with calls("chat.update") as made:
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(made.call("before", "chat.update", CallSlot(Priority.ANSWER, str(number))))
            slot = CallSlot(Priority.REACTION, "over")
            cancelled = asyncio.create_task(made.call("over", "chat.update", slot))
            await asyncio.sleep(0.1)
            slot.scope.cancel()
            with pytest.raises(CallCancelled):
                await cancelled
            assert now_s() == pytest.approx(0.1)
        assert made.order == ["before"] * 20


@in_virtual_time
async def test_a_cancelled_call_takes_no_turn_that_is_free():
    async with calls() as made:
        slot = CallSlot()
        slot.scope.cancel()
        with pytest.raises(CallCancelled):
            await made.call("", "chat.postMessage", slot)


@in_virtual_time
async def test_the_turn_of_a_cancelled_task_goes_to_the_next_one():
    async with calls("chat.update") as made:
        first, second = (asyncio.create_task(made.call("", "chat.update")) for _ in range(2))
        await asyncio.sleep(0.1)
        first.cancel()
        await second
        assert now_s() < 2


@in_virtual_time
async def test_an_error_of_the_budget_blocks_no_call():
    class FailingBudget(LocalRateBudget):
        calls = 0

        async def take(self, bucket, limit):
            self.calls += 1
            if self.calls in {1, 3}:
                raise ValueError
            return await super().take(bucket, limit)

    async with calls(budget=FailingBudget()) as made, asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(made.call(str(number), "chat.update"))
    assert made.order == ["0", "1", "2"]


@in_virtual_time
async def test_closing_cancels_the_queued_calls():
    async with calls("chat.update") as made:
        late = asyncio.create_task(made.call("late", "chat.update"))
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError):
        await late


@in_virtual_time
async def test_a_rate_limit_of_slack_pauses_its_method():
    async with calls() as made:
        await made.limiter.pause("users.info", "", 30)
        await made.call("", "chat.update")
        assert now_s() == 0
        await made.call("", "users.info")
        assert now_s() == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize(("pause_s", "others_wait_s"), [(2, 0), (30, 30)])
@in_virtual_time
async def test_a_long_pause_of_posts_in_one_channel_is_one_of_the_workspace(pause_s, others_wait_s):
    async with calls() as made:
        await made.limiter.pause("chat.postMessage", "C1", pause_s)
        await made.call("other", "chat.postMessage", channel="C2")
        assert now_s() == pytest.approx(others_wait_s, abs=0.1)
        await made.call("same", "chat.postMessage")
        assert now_s() == pytest.approx(pause_s, abs=2)


@in_virtual_time
async def test_channels_without_recent_posts_use_no_memory():
    budget = LocalRateBudget()
    async with calls(budget=budget) as made:
        for number in range(1000):
            await made.call("", "chat.postMessage", channel=f"C{number}")
            await asyncio.sleep(1)
        assert not made.limiter._queues
        assert len(budget._buckets) <= 250


@in_virtual_time
async def test_the_scale_is_a_factor_on_the_limits():
    async with calls(scale=1000) as made:
        for _ in range(1000):
            await made.call("", "reactions.remove")
        assert now_s() == 0
