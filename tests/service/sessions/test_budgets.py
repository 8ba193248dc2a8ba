"""Accounts of budgets in each store: reserved before calls, settled after them, by several processes at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.modules.hooks_budget.ledger import Limit
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.sessions.budgets import StoredBudgets
from service.store import open_run_store

KEY = Key("T1:C1:1.5", "alpha")
NOW_S = datetime(2026, 3, 28, 22, 30, tzinfo=UTC).timestamp()
DAY_S = 86_400
LIMIT = Limit("person", "day", "usd", "1", "U1", "Europe/Berlin")


class Clock:
    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


class Budgets:
    """The budgets of one process; `told` are the texts of its notices by their ids."""

    def __init__(self, store, clock) -> None:
        self.told = {}
        self._functions = StoredBudgets(retrying(store, StoreRetryPolicy()), self._admit, clock).functions

    async def _admit(self, conversation_id, entry) -> None:
        self.told.setdefault((conversation_id, entry.id), entry.data["text"])

    async def _call(self, name, call, usd, limits, tokens) -> str:
        amounts = {"usd": str(usd), "tokens": str(tokens)}
        arguments = {"call": call, "limits": [asdict(each) for each in limits], "amounts": amounts}
        return (await self._functions[f"budget.{name}"](KEY, arguments)).get("refused", "")

    async def reserve(self, call, usd, *limits, tokens=0) -> str:
        return await self._call("reserve", call, usd, limits or (LIMIT,), tokens)

    async def settle(self, call, usd, *limits, tokens=0) -> str:
        return await self._call("settle", call, usd, limits or (LIMIT,), tokens)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def budgets(store, clock):
    return Budgets(store, clock)


@pytest.fixture
async def store(url):
    async with aclosing(await open_run_store(url)) as store:
        yield store


@pytest.fixture(params=["sqlite", "redis"])
def url(request):
    return request.getfixturevalue(f"{request.param}_url")


async def test_a_call_needs_room_for_its_estimate_and_counts_what_it_has_cost(budgets):
    assert not await budgets.reserve("a", "0.60")
    assert not await budgets.reserve("a", "0.60")  # its answer was lost
    refused = "The daily budget of the person who began this ($1.00) is used up. It returns on 29 Mar 2026 at 00:00"
    assert (await budgets.reserve("b", "0.60")).startswith(refused)
    await budgets.settle("a", "0.10")
    await budgets.settle("a", "0.10")
    assert not await budgets.reserve("b", "0.60")
    await budgets.settle("b", "0.90")  # more than was reserved
    assert await budgets.reserve("c", "0.01")
    assert not await budgets.reserve("summary", "0")  # it is made before its cost is known
    await budgets.settle("summary", "0.05")
    assert [text.rpartition(": ")[2].partition(" It")[0] for text in budgets.told.values()] == ["$1.00."]


async def test_all_budgets_of_a_call_have_room_or_none_is_reserved(budgets):
    channel = Limit("channel", "month", "tokens", "100", "C1")
    assert not await budgets.reserve("a", "0.9", LIMIT, channel, tokens=60)
    await budgets.settle("a", "0", LIMIT, channel, tokens=60)
    assert "monthly budget of this channel (100 tokens)" in await budgets.reserve("b", "0.9", LIMIT, channel, tokens=60)
    assert not await budgets.reserve("c", "1", LIMIT)


@pytest.mark.parametrize(
    ("period", "zone", "later_s", "returns"),
    [
        ("day", "Europe/Berlin", 1800, "29 Mar 2026 at 00:00 (Europe/Berlin)"),
        ("day", "UTC", 5400, "29 Mar 2026 at 00:00 (UTC)"),
        ("day", "Asia/Kathmandu", 19.75 * 3600, "30 Mar 2026 at 00:00 (Asia/Kathmandu)"),
        ("month", "UTC", 3 * DAY_S + 5400, "01 Apr 2026 at 00:00 (UTC)"),
        ("month", "Europe/Berlin", 3 * DAY_S - 1800, "01 Apr 2026 at 00:00 (Europe/Berlin)"),
    ],
)
async def test_a_budget_returns_at_the_beginning_of_the_next_period(  # noqa: PLR0917
    budgets, clock, period, zone, later_s, returns
):
    limit = Limit("workspace", period, "usd", "1", "", zone)
    await budgets.reserve("a", "1", limit)
    assert f"It returns on {returns}." in await budgets.reserve("b", "1", limit)
    clock.now_s += later_s - 1
    await budgets.settle("a", "1", limit)
    assert await budgets.reserve("b", "1", limit)
    clock.now_s += 1
    assert not await budgets.reserve("b", "1", limit)


@pytest.mark.parametrize("period", ["day", "month"])
async def test_a_call_counts_once_in_the_period_in_which_it_ends(budgets, clock, period):
    limit = Limit("person", period, "usd", "1", "U1", "UTC")
    clock.now_s = datetime(2026, 3, 31, 23, 59, 50, tzinfo=UTC).timestamp()
    await budgets.reserve("a", "0.1", limit)
    await budgets.reserve("b", "0.9", limit)  # the budget of this period is used up
    clock.now_s += 60
    await budgets.settle("b", "0", limit)
    for _ in range(2):
        await budgets.settle("a", "0.6", limit)
    assert not await budgets.reserve("c", "0.4", limit)
    assert await budgets.reserve("d", "0.01", limit)


async def test_what_a_process_had_reserved_that_died_in_an_earlier_period_is_forgotten(budgets, clock):
    await budgets.reserve("a", "1")
    clock.now_s += 2 * DAY_S
    assert not await budgets.reserve("b", "1")


async def test_what_a_dead_process_has_reserved_counts_as_spent(budgets, clock):
    clock.now_s -= 7200
    await budgets.reserve("a", "0.9")
    clock.now_s += 7200
    assert await budgets.reserve("b", "0.2")
    await budgets.settle("a", "0")
    assert await budgets.reserve("b", "0.2")


async def test_the_thread_is_told_once_at_each_mark(budgets):
    for number, usd in enumerate(("0.70", "0.04", "0.02", "0.18", "0.02", "0.01")):
        await budgets.reserve(f"{number}", "0")
        await budgets.settle(f"{number}", usd)
    assert {conversation for conversation, _ in budgets.told} == {"T1:C1:1.5"}
    assert [text.partition(" It")[0] for text in budgets.told.values()] == [
        "💰 75 % of the daily budget of the person who began this ($1.00) is used: $0.76.",
        "💰 95 % of the daily budget of the person who began this ($1.00) is used: $0.96.",
    ]


async def test_processes_that_reserve_at_once_never_reserve_more_than_there_is(url, clock):
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(aclosing(await open_run_store(url)))]
        if url.startswith("redis"):
            stores.append(await stack.enter_async_context(aclosing(await open_run_store(url))))
        processes = [Budgets(store, clock) for store in stores]

        async def work(number):
            budgets, call = processes[number % len(processes)], f"call {number}"
            if await budgets.reserve(call, "0.30"):
                return Decimal()
            await budgets.settle(call, "0.15")
            return Decimal("0.15")

        spent = sum(await asyncio.gather(*map(work, range(20))))
        assert Decimal("0.15") <= spent <= 1
        assert await processes[0].reserve("last", Decimal("1.01") - spent)
        assert not await processes[0].reserve("last", 1 - spent)
