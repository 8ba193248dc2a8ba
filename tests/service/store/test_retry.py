"""Waiting through the outages of a store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.store.retry import RetryingStore, StoreRetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Server:
    """Answers with how often it was asked, and is away until it is there."""

    def __init__(self) -> None:
        self.is_there = False
        self.asked: list[float] = []

    async def ask(self) -> int:
        self.asked.append(asyncio.get_running_loop().time())
        if not self.is_there:
            raise StoreUnavailable("The store is away: start it.")
        return len(self.asked)

    def comes_back_in(self, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, setattr, self, "is_there", True)


def told(lines: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines if line["event"].startswith("store.")]


@in_virtual_time
async def test_an_answer_is_waited_for_however_long_the_store_is_away():
    server, patience = Server(), StoreRetryPolicy()
    server.comes_back_in(3600)
    assert await patience.call(server.ask) == len(server.asked)
    waits = [later - one for one, later in zip(server.asked, server.asked[1:], strict=False)]
    assert waits[0] <= 0.05
    assert 0.5 <= min(waits[10:]) <= max(waits) <= 1
    assert server.asked[-1] - server.asked[0] <= 3601


@in_virtual_time
async def test_an_outage_is_told_once_for_all_who_wait_then_every_ten_seconds_and_when_it_is_over():
    server, patience = Server(), StoreRetryPolicy()
    server.comes_back_in(25)
    with capture_logs() as lines:
        await asyncio.gather(*(patience.call(server.ask) for _ in range(100)))
        await patience.call(server.ask)
    assert told(lines) == ["store.unavailable", "store.unavailable", "store.unavailable", "store.available"]
    assert lines[0]["problem"] == "The store is away: start it."
    assert [round(line["for_s"]) for line in lines[1:3]] == [10, 20]
    assert 25 <= lines[3]["after_s"] <= 26


@in_virtual_time
async def test_however_many_wait_few_of_them_ask_and_when_it_is_back_all_are_soon_answered():
    server, patience = Server(), StoreRetryPolicy()
    server.comes_back_in(60)
    await asyncio.gather(*(patience.call(server.ask) for _ in range(10_000)))
    began, last = server.asked[0], server.asked[-1]
    in_a_minute = sum(began + 10 < at <= began + 59 for at in server.asked)
    assert in_a_minute <= 50 * 32
    assert last - began <= 60 + 1 + 10_000 * 0.02 / 16


@in_virtual_time
async def test_each_of_those_who_wait_has_its_turn_while_another_server_stays_away():
    away, back, patience = Server(), Server(), StoreRetryPolicy()
    back.comes_back_in(5)
    waiting = [asyncio.create_task(patience.call(away.ask)) for _ in range(100)]
    assert await asyncio.wait_for(patience.call(back.ask), 20)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)


@in_virtual_time
async def test_each_outage_is_told_anew():
    server, patience = Server(), StoreRetryPolicy()
    with capture_logs() as lines:
        for _ in range(2):
            server.is_there = False
            server.comes_back_in(1)
            await patience.call(server.ask)
    assert told(lines) == ["store.unavailable", "store.available"] * 2


@in_virtual_time
async def test_of_several_servers_one_that_answers_does_not_end_the_outage_of_another_one():
    away, there, patience = Server(), Server(), StoreRetryPolicy()
    there.is_there = True
    away.comes_back_in(5)
    with capture_logs() as lines:
        waiting = asyncio.create_task(patience.call(away.ask))
        await asyncio.sleep(1)
        assert await patience.call(there.ask) == 1
        assert told(lines) == ["store.unavailable"]
        assert patience.unsettled_s(10) == 10
        await waiting
    assert told(lines) == ["store.unavailable", "store.available"]


@in_virtual_time
async def test_who_waits_can_be_cancelled_and_the_next_answer_ends_the_outage():
    server, patience = Server(), StoreRetryPolicy()
    with capture_logs() as lines:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await patience.call(server.ask)
        assert patience.unsettled_s(10) == 10
        server.is_there = True
        await patience.call(server.ask)
    assert told(lines) == ["store.unavailable", "store.available"]


@in_virtual_time
async def test_after_an_outage_it_settles_for_a_while():
    server, patience = Server(), StoreRetryPolicy()
    assert patience.unsettled_s(10) == 0
    server.comes_back_in(1)
    await patience.call(server.ask)
    assert patience.unsettled_s(10) == 10
    await asyncio.sleep(4)
    assert patience.unsettled_s(10) == pytest.approx(6)
    await asyncio.sleep(7)
    assert patience.unsettled_s(10) == 0


@in_virtual_time
async def test_what_waiting_does_not_help_with_is_told_at_once():
    async def refused() -> None:
        raise StoreError("The password is wrong.")

    with capture_logs() as lines, pytest.raises(StoreError, match="password"):
        await StoreRetryPolicy().call(refused)
    assert told(lines) == []


class Away(MemoryStore):
    """A log store each of whose methods fails once, before it does anything."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name.startswith("_") or not callable(method) or name in {"aclose", "scan"}:
            return method

        async def flaky(*given: Any) -> Any:
            if name not in self.failed:
                self.failed.add(name)
                raise StoreUnavailable("The store is away.")
            return await method(*given)

        return flaky

    async def scan(self, *given: Any) -> AsyncIterator[Any]:
        if "scan" not in self.failed:
            self.failed.add("scan")
            raise StoreUnavailable("The store is away.")
        async for each in super().scan(*given):
            yield each


@in_virtual_time
async def test_every_method_of_a_log_store_waits():
    away = Away()
    store = RetryingStore(away, StoreRetryPolicy())
    key = Key("T:C:1.0", "alpha")
    stack = InteractionStack(store, key.conversation_id, key.agent_id)
    await stack.fence(3)
    await stack.push(UserMessageState("hello"))
    assert len([each async for each in store.scan(0, 1e12, ())]) == 1
    assert await store.keys() == [key]
    assert len(await store.read(key, 0, 0, 1)) == 1
    await store.save_agent("beta", "{}")
    assert await store.agents() == {"beta": "{}"}
    await store.forget_agent("beta")
    log = await store.load(key)
    assert log is not None
    await store.remove(key, log.version)
    methods = {"load", "commit", "fence", "read", "keys", "scan", "remove", "save_agent", "agents", "forget_agent"}
    assert away.failed == methods
    await store.aclose()
