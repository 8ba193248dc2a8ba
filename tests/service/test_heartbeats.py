"""Heartbeats between processes: the leases of a dead one end soon, and those of a living one do not."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from functools import partial

import pytest

from connector.protocols import InboxEntry, LeaseLost
from orchestrator_interactive.storage.errors import StoreError
from service.heartbeats import SILENT_S, ThreadedHeartbeats
from service.store import inspect_run_store, open_run_store

_LEASE_S = 60.0
LIVING, DEAD = "T:C:1.0", "T:C:2.0"


@pytest.fixture(params=["redis", "cluster"])
def redis_like_url(request):
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def store(redis_like_url):
    async with aclosing(await open_run_store(redis_like_url)) as store:
        yield store


@pytest.fixture
def member(process, redis_like_url):
    """Start a process that sends heartbeats; the processes are named one, two and three."""
    names = iter(("one", "two", "three"))

    def start():
        heartbeats = ThreadedHeartbeats(partial(inspect_run_store, redis_like_url), next(names), time.monotonic)
        return process(_LEASE_S, redis_like_url, clock=time.monotonic, heartbeats=heartbeats)

    return start


async def dies(store, conversation_id: str = DEAD) -> None:
    """Send a heartbeat as another process, take a conversation with a message, and do nothing more."""
    await store.beat("dead")
    await store.admit(conversation_id, InboxEntry(f"{conversation_id}:1", "message", {}), "alpha")
    assert await store.claim(conversation_id, "dead", _LEASE_S)


async def test_a_silent_process_loses_its_leases_long_before_they_expire(store, member):
    began_s = time.monotonic()
    await dies(store)
    async with member() as living:
        await living.wakes(DEAD)
        assert time.monotonic() - began_s < SILENT_S + 1
        assert await living.runs.claim(DEAD)
        async with asyncio.timeout(50):
            while "dead" in await store.beat("a test"):
                pass


async def test_a_process_that_never_sent_a_heartbeat_keeps_its_leases(store, member):
    """As one of an earlier version does in a rolling upgrade."""
    assert await store.claim(LIVING, "earlier version", _LEASE_S)
    await store.admit(LIVING, InboxEntry("T:C:1", "message", {}), "alpha")
    await dies(store)
    async with member() as living:
        await living.wakes(DEAD)
        assert await living.runs.claim(LIVING) is None
        assert LIVING not in living.woken


async def test_a_process_that_renews_its_leases_keeps_them_without_heartbeats(store, member):
    await dies(store, LIVING)
    claim = await store.claim(LIVING, "dead", _LEASE_S)
    await dies(store)
    async with member() as living:
        until_s = time.monotonic() + SILENT_S + 1
        while time.monotonic() < until_s:
            await store.renew(LIVING, claim.token, _LEASE_S)
            await asyncio.sleep(0.1)
        assert DEAD in living.woken
        assert LIVING not in living.woken
        assert "dead" in await store.beat("a test"), "it still has a lease"
        await living.wakes(LIVING)


async def test_a_busy_event_loop_silences_no_process(store, member):
    async with member() as busy, member() as other:
        assert await busy.admit(1, LIVING)
        lease = await busy.owns(LIVING)
        await dies(store)
        time.sleep(SILENT_S + 1)  # noqa: ASYNC251 - blocks the loops of both
        await asyncio.wait({asyncio.create_task(each.wakes(DEAD)) for each in (busy, other)})
        await lease.confirm()
        assert await other.runs.claim(LIVING) is None


@pytest.mark.parametrize("redis_like_url", ["redis"], indirect=True)
async def test_a_store_that_pauses_silences_no_process(member, store, redis):
    async with member() as owner, member() as other:
        assert await owner.admit(1, LIVING)
        lease = await owner.owns(LIVING)
        await dies(store)
        redis.ask("CLIENT", "PAUSE", str(int(SILENT_S * 1000) + 1000), "ALL")
        await asyncio.wait({asyncio.create_task(each.wakes(DEAD, 20)) for each in (owner, other)})
        await lease.confirm()
        assert await other.runs.claim(LIVING) is None


@pytest.mark.parametrize("has_sent_one_again", [False, True])
async def test_an_owner_that_was_suspended_asks_the_store_before_it_acts(
    store, process, redis_like_url, has_sent_one_again
):
    """Its clock shows that it sent no heartbeat for a while, during which another process may have taken over."""
    jump_s = 0.0

    def clock():
        return time.monotonic() + jump_s

    async def sends(more):
        count = (await store.beat("a test")).get("one", 0)
        while (await store.beat("a test")).get("one", 0) < count + more:
            pass

    heartbeats = ThreadedHeartbeats(partial(inspect_run_store, redis_like_url), "one", clock)
    async with process(_LEASE_S, redis_like_url, clock=clock, heartbeats=heartbeats) as one:
        await sends(2)
        assert await one.admit(1, LIVING)
        lease = await one.owns(LIVING)
        assert await store.claim(LIVING, "one", _LEASE_S), "another process has it now"
        await lease.confirm()
        jump_s = SILENT_S
        if has_sent_one_again:
            await sends(2)
        with pytest.raises(LeaseLost):
            await lease.confirm()


@pytest.mark.parametrize("redis_like_url", ["redis"], indirect=True)
async def test_a_store_that_refuses_heartbeats_at_first_gets_them_later(store, redis_like_url):
    refusals = [StoreError("Redis is busy running a script.")]

    async def open_store():
        if refusals:
            raise refusals.pop()
        return await inspect_run_store(redis_like_url)

    sending = asyncio.create_task(ThreadedHeartbeats(open_store, "one", time.monotonic).run())
    async with asyncio.timeout(50):
        while "one" not in await store.beat("a test"):
            assert not sending.done()
    sending.cancel()
    await asyncio.wait({sending})


async def test_an_error_of_the_heartbeats_is_reported_as_it_is():
    async def open_store():
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await ThreadedHeartbeats(open_store, "one", time.monotonic).run()
