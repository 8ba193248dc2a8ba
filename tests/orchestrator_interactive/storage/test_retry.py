from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying


class Server:
    """Returns the number of calls so far, and fails while it is away."""

    def __init__(self, *, is_there=False):
        self.is_there = is_there
        self.calls = []

    async def call(self):
        self.calls.append(asyncio.get_running_loop().time())
        if not self.is_there:
            raise StoreUnavailable("The store is away: start it.")
        return len(self.calls)

    def returns_in(self, delay_s):
        asyncio.get_running_loop().call_later(delay_s, setattr, self, "is_there", True)


def events(lines):
    return [line["event"] for line in lines if line["event"].startswith("store.")]


@in_virtual_time
async def test_a_call_is_retried_with_backoff_until_the_store_is_back():
    server, policy = Server(), StoreRetryPolicy()
    server.returns_in(3600)
    assert await policy.call(server.call) == len(server.calls)
    waits = [later - one for one, later in zip(server.calls, server.calls[1:], strict=False)]
    assert waits[0] <= 0.05
    assert 0.5 <= min(waits[10:]) <= max(waits) <= 1
    assert server.calls[-1] - server.calls[0] <= 3601


@in_virtual_time
async def test_an_outage_is_logged_once_for_all_calls_then_every_ten_seconds_and_at_its_end():
    server, policy = Server(), StoreRetryPolicy()
    server.returns_in(25)
    with capture_logs() as lines:
        await asyncio.gather(*(policy.call(server.call) for _ in range(100)))
        await policy.call(server.call)
    assert events(lines) == ["store.unavailable", "store.unavailable", "store.unavailable", "store.available"]
    assert lines[0]["problem"] == "The store is away: start it."
    assert [round(line["for_s"]) for line in lines[1:3]] == [10, 20]
    assert 25 <= lines[3]["after_s"] <= 26


@in_virtual_time
async def test_many_waiting_calls_make_few_attempts_and_all_succeed_soon_after_the_outage():
    server, policy = Server(), StoreRetryPolicy()
    server.returns_in(60)
    await asyncio.gather(*(policy.call(server.call) for _ in range(10_000)))
    start, end = server.calls[0], server.calls[-1]
    assert sum(start + 10 < at <= start + 59 for at in server.calls) <= 50 * 32
    assert end - start <= 60 + 1 + 10_000 * 0.02 / 16


@in_virtual_time
async def test_calls_to_an_absent_server_do_not_block_calls_to_another():
    away, back, policy = Server(), Server(), StoreRetryPolicy()
    back.returns_in(5)
    waiting = [asyncio.create_task(policy.call(away.call)) for _ in range(100)]
    assert await asyncio.wait_for(policy.call(back.call), 20)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)


@in_virtual_time
async def test_each_outage_is_logged():
    server, policy = Server(), StoreRetryPolicy()
    with capture_logs() as lines:
        for _ in range(2):
            server.is_there = False
            server.returns_in(1)
            await policy.call(server.call)
    assert events(lines) == ["store.unavailable", "store.available"] * 2


@in_virtual_time
async def test_the_success_of_one_server_does_not_end_the_outage_of_another():
    away, there, policy = Server(), Server(is_there=True), StoreRetryPolicy()
    away.returns_in(5)
    with capture_logs() as lines:
        waiting = asyncio.create_task(policy.call(away.call))
        await asyncio.sleep(1)
        assert await policy.call(there.call) == 1
        assert events(lines) == ["store.unavailable"]
        assert policy.unsettled_s(10) == 10
        await waiting
    assert events(lines) == ["store.unavailable", "store.available"]


@in_virtual_time
async def test_a_waiting_call_can_be_cancelled_and_the_next_success_ends_the_outage():
    server, policy = Server(), StoreRetryPolicy()
    with capture_logs() as lines:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await policy.call(server.call)
        assert policy.unsettled_s(10) == 10
        server.is_there = True
        await policy.call(server.call)
    assert events(lines) == ["store.unavailable", "store.available"]


@in_virtual_time
async def test_a_store_is_unsettled_for_some_time_after_an_outage():
    server, policy = Server(), StoreRetryPolicy()
    assert policy.unsettled_s(10) == 0
    server.returns_in(1)
    await policy.call(server.call)
    assert policy.unsettled_s(10) == 10
    await asyncio.sleep(4)
    assert policy.unsettled_s(10) == pytest.approx(6)
    await asyncio.sleep(7)
    assert policy.unsettled_s(10) == 0


@in_virtual_time
async def test_an_error_that_is_no_outage_is_not_retried():
    async def refuse():
        raise StoreError("The password is wrong.")

    with capture_logs() as lines, pytest.raises(StoreError, match="password"):
        await StoreRetryPolicy().call(refuse)
    assert events(lines) == []


class FlakyStore(MemoryStore):
    """A log store each of whose methods fails once before it does anything."""

    def __init__(self):
        super().__init__()
        self.failed = set()

    def __getattribute__(self, name):
        method = super().__getattribute__(name)
        if name.startswith("_") or not callable(method) or name == "aclose":
            return method

        async def flaky(*given):
            if name not in self.failed:
                self.failed.add(name)
                raise StoreUnavailable("The store is away.")
            return await method(*given)

        return flaky


@in_virtual_time
async def test_every_method_of_a_log_store_is_retried():
    flaky, key = FlakyStore(), Key("T:C:1.0", "alpha")
    store = retrying(flaky, StoreRetryPolicy())
    stack = InteractionStack(store, key.conversation_id, key.agent_id)
    await stack.fence(3)
    await stack.push(UserMessageState("hello"))
    assert await store.keys() == [key]
    assert len(await store.read(key, 0, 0, 1)) == 1
    await store.save_agent("beta", "{}")
    assert await store.agents() == {"beta": "{}"}
    await store.forget_agent("beta")
    await store.remove(key, (await store.load(key)).version)
    methods = {"load", "commit", "fence", "read", "keys", "remove", "save_agent", "agents", "forget_agent"}
    assert flaky.failed == methods
    await store.aclose()
