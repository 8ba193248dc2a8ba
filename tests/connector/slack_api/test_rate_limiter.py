"""Who may call Slack next, in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import in_virtual_time

from connector.slack_api.rate_budget import LocalRateBudget
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, Priority, RateLimiter
from connector.slack_api.tiers import limits_of

# What Slack allows in a minute.
_TIERS = {"reactions.remove": 20, "chat.update": 50, "reactions.add": 50, "users.info": 100, "chat.postMessage": 300}
_MINUTE_S = 60.0


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class _Calls:
    """Calls over one scheduler, and when their turns came."""

    def __init__(self, scheduler: RateLimiter) -> None:
        self.scheduler = scheduler
        self.order: list[str] = []
        self.at_s: defaultdict[str, list[float]] = defaultdict(list)

    async def call(self, name: str, method: str, turn: CallSlot, channel: str = "C1") -> None:
        await self.scheduler.wait(method, channel, turn)
        self.order.append(name)
        self.at_s[method].append(_now_s())


async def _exhausted(calls: _Calls, method: str) -> None:
    """Use up all that may go at once."""
    for limit in limits_of(method, "C1", 1).values():
        for _ in range(int(limit.burst)):
            await calls.call("", method, CallSlot(), "C1")
    calls.order.clear()


def _most_in_a_minute(times_s: list[float]) -> int:
    return max(sum(begin <= at_s < begin + _MINUTE_S for at_s in times_s) for begin in times_s)


@pytest.mark.parametrize("method", _TIERS)
@settings(max_examples=8, deadline=None)
@given(gaps_s=st.lists(st.sampled_from([0.0, 0.0, 0.1, 1.0, 7.0]), min_size=1, max_size=150))
def test_no_minute_has_more_calls_than_slack_allows(method, gaps_s):
    @in_virtual_time
    async def go():
        async with RateLimiter("T") as scheduler, asyncio.TaskGroup() as tasks:
            calls = _Calls(scheduler)
            for number, gap_s in enumerate(gaps_s):
                tasks.create_task(calls.call("", method, CallSlot(run=str(number)), f"C{number}"))
                await asyncio.sleep(gap_s)
        assert len(calls.at_s[method]) == len(gaps_s)
        assert _most_in_a_minute(calls.at_s[method]) <= _TIERS[method]

    go()


@in_virtual_time
async def test_posts_in_one_channel_come_at_one_a_second_and_hold_no_other_channel_up():
    async with RateLimiter("T") as scheduler, asyncio.TaskGroup() as tasks:
        calls = _Calls(scheduler)
        for _ in range(24):
            tasks.create_task(calls.call("busy", "chat.postMessage", CallSlot(), "C1"))
        await asyncio.sleep(1)
        await calls.call("other", "chat.postMessage", CallSlot(), "C2")
        assert _now_s() == pytest.approx(1, abs=0.01)
    assert 20 <= _now_s() < 24


@in_virtual_time
async def test_answers_go_before_statuses_and_those_before_marks_and_sweeps_and_what_came_first_goes_first():
    async with RateLimiter("T") as scheduler:
        calls = _Calls(scheduler)
        await _exhausted(calls, "reactions.remove")
        async with asyncio.TaskGroup() as tasks:
            for number in range(2):
                for urgency in reversed(Priority):
                    turn = CallSlot(urgency, f"run {number}")
                    tasks.create_task(calls.call(f"{urgency.name} {number}", "reactions.remove", turn))
    assert calls.order == [f"{urgency.name} {number}" for urgency in Priority for number in range(2)]


@in_virtual_time
async def test_a_run_with_much_to_say_does_not_keep_the_others_waiting():
    async with RateLimiter("T") as scheduler:
        calls = _Calls(scheduler)
        await _exhausted(calls, "chat.update")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(6):
                tasks.create_task(calls.call("much", "chat.update", CallSlot(run="much")))
            await asyncio.sleep(0.1)
            for name in ("one", "two"):
                tasks.create_task(calls.call(name, "chat.update", CallSlot(run=name)))
    assert set(calls.order[:3]) == {"much", "one", "two"}


@in_virtual_time
async def test_what_is_not_needed_any_more_takes_no_turn_and_waits_for_nobody():
    async with RateLimiter("T") as scheduler:
        calls = _Calls(scheduler)
        await _exhausted(calls, "chat.update")
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(calls.call("before", "chat.update", CallSlot(Priority.ANSWER, str(number))))
            turn = CallSlot(Priority.MARK, "over")
            waiting = asyncio.create_task(calls.call("over", "chat.update", turn))
            await asyncio.sleep(0.1)
            turn.scope.forget()
            with pytest.raises(CallCancelled):
                await waiting
            assert _now_s() == pytest.approx(0.1)
        assert calls.order == ["before"] * 20


@in_virtual_time
async def test_what_is_not_needed_any_more_takes_no_turn_where_there_is_room_for_it():
    async with RateLimiter("T") as scheduler:
        turn = CallSlot()
        turn.scope.forget()
        with pytest.raises(CallCancelled):
            await scheduler.wait("chat.postMessage", "C1", turn)


@in_virtual_time
async def test_a_budget_that_fails_for_a_moment_keeps_nobody_waiting_for_ever():
    class Failing(LocalRateBudget):
        asked = 0

        async def take(self, bucket, limit):
            self.asked += 1
            if self.asked in {1, 3}:
                raise ValueError
            return await super().take(bucket, limit)

    async with RateLimiter("T", Failing()) as scheduler, asyncio.TaskGroup() as tasks:
        calls = _Calls(scheduler)
        for number in range(3):
            tasks.create_task(calls.call(str(number), "chat.update", CallSlot()))
    assert calls.order == ["0", "1", "2"]


@in_virtual_time
async def test_who_still_waits_when_a_scheduler_is_closed_does_not_wait_for_ever():
    async with RateLimiter("T") as scheduler:
        calls = _Calls(scheduler)
        await _exhausted(calls, "chat.update")
        waiting = asyncio.create_task(calls.call("late", "chat.update", CallSlot()))
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(("for_s", "others_wait_s"), [(2, 0), (30, 30)])
@in_virtual_time
async def test_a_post_that_has_to_wait_long_has_met_the_workspaces_limit(for_s, others_wait_s):
    async with RateLimiter("T") as scheduler:
        calls = _Calls(scheduler)
        await scheduler.pause("chat.postMessage", "C1", for_s)
        await calls.call("other", "chat.postMessage", CallSlot(), "C2")
        assert _now_s() == pytest.approx(others_wait_s, abs=0.1)
        await calls.call("same", "chat.postMessage", CallSlot(), "C1")
        assert _now_s() == pytest.approx(for_s, abs=2)


@in_virtual_time
async def test_channels_in_which_nothing_is_posted_any_more_cost_nothing():
    budget = LocalRateBudget()
    async with RateLimiter("T", budget) as scheduler:
        for number in range(1000):
            await scheduler.wait("chat.postMessage", f"C{number}", CallSlot())
            await asyncio.sleep(1)
        assert not scheduler._queues  # no public sign
        assert len(budget._buckets) <= 250


@in_virtual_time
async def test_who_is_cancelled_while_he_waits_leaves_his_turn_to_the_next():
    async with RateLimiter("T") as scheduler:
        calls = _Calls(scheduler)
        await _exhausted(calls, "chat.update")
        waiting = asyncio.create_task(calls.call("gone", "chat.update", CallSlot()))
        next_one = asyncio.create_task(calls.call("next", "chat.update", CallSlot()))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await next_one
        assert _now_s() < 2


@in_virtual_time
async def test_what_slack_asks_us_to_leave_alone_is_left_alone_for_so_long():
    async with RateLimiter("T") as scheduler:
        calls = _Calls(scheduler)
        await scheduler.pause("users.info", "", 30)
        await calls.call("", "chat.update", CallSlot())
        assert _now_s() == 0
        await calls.call("", "users.info", CallSlot())
        assert _now_s() == pytest.approx(30, abs=0.1)


@in_virtual_time
async def test_where_slack_has_granted_more_more_is_used():
    async with RateLimiter("T", scale=1000) as scheduler:
        calls = _Calls(scheduler)
        for _ in range(1000):
            await calls.call("", "reactions.remove", CallSlot())
        assert _now_s() == 0
