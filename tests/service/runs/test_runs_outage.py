"""Runs through the outages of a real Redis, and the deaths of the processes that own them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from redis_server import redis_server
from structlog.testing import capture_logs

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.storage.errors import StoreUnavailable
from service.runs.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redis_server import RedisServer

HERE = "T:C:1.0"
# A process that owns a conversation, and says so; then whether it still does, each time that it is asked.
OWNER = """
import asyncio, sys
from connector.protocols import StateChanges, LeaseLost
from service.runs.runs import StoredRuns
from service.store import open_run_store

async def main(url, place):
    async with StoredRuns(await open_run_store(url), "another", 1) as runs:
        runs.watch(place.partition(":")[0], lambda _: None)
        lease = await runs.claim(place)
        await lease.write(StateChanges(run={"id": "r"}))
        print("owns", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            try:
                await lease.write(StateChanges(run={"id": "stale"}))
                print("owns", flush=True)
            except LeaseLost:
                print("lost", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@asynccontextmanager
async def process(server: RedisServer, owner: str, lease_s: float = 10) -> AsyncIterator[tuple[StoredRuns, list[str]]]:
    """A process, and the conversations that it was told to look after."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(aclosing(await open_run_store(server.url)))
        runs = await stack.enter_async_context(StoredRuns(store, owner, lease_s))
        news: list[str] = []
        runs.watch("T", news.append)
        yield runs, news


@asynccontextmanager
async def owner_elsewhere(server: RedisServer) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, server.url, HERE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await _says(process) == "owns"
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.communicate()


async def _says(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(20):
        line = await process.stdout.readline()
        while not line.startswith((b"owns", b"lost")):
            assert line
            line = await process.stdout.readline()
    return line.decode().strip()


async def _claimed(runs: StoredRuns):
    async with asyncio.timeout(15):
        while (lease := await runs.claim(HERE)) is None:  # noqa: ASYNC110 - nobody tells when a lease runs out
            await asyncio.sleep(0.02)
    return lease


def message(number: int) -> InboxEntry:
    return InboxEntry(f"T:C:{number}", "message", {"text": f"message {number}"})


def told(lines: list[dict]) -> list[str]:
    return [line["event"] for line in lines if line["event"].startswith("store.")]


async def test_a_conversation_whose_owner_was_killed_goes_on_here_once_its_lease_has_run_out(redis):
    async with owner_elsewhere(redis) as owner, process(redis, "here") as (runs, _):
        await asyncio.sleep(1.5)  # longer than its lease: it is renewed
        assert await runs.claim(HERE) is None
        owner.kill()
        assert (await _claimed(runs)).claim.run == {"id": "r"}


async def test_an_owner_that_was_frozen_finds_its_lease_lost_and_writes_nothing(redis):
    async with owner_elsewhere(redis) as owner, process(redis, "here") as (runs, _):
        owner.send_signal(signal.SIGSTOP)
        lease = await _claimed(runs)
        owner.send_signal(signal.SIGCONT)
        assert owner.stdin is not None
        owner.stdin.write(b"\n")
        assert await _says(owner) == "lost"
        await lease.hand_over()
        assert (await _claimed(runs)).claim.run == {"id": "r"}


async def test_while_the_store_is_away_everything_waits_and_then_goes_on_as_if_nothing_had_been(redis):
    with capture_logs() as lines:
        async with process(redis, "here", lease_s=2) as (runs, news):
            lease = await _claimed(runs)
            losing = asyncio.create_task(lease.lost())
            redis.kill()
            waiting = [
                asyncio.create_task(runs.admit(HERE, message(1), "alpha")),
                asyncio.create_task(lease.write(StateChanges(run={"id": "r"}))),
                asyncio.create_task(runs.claim("T:C:2.0")),
            ]
            done, _ = await asyncio.wait(waiting, timeout=2.5)  # longer than a lease
            assert not done
            redis.start()
            async with asyncio.timeout(10):
                assert (await waiting[0], (await waiting[2]) is not None) == (True, True)
                await waiting[1]
            assert [entry.id for entry in await lease.fetch(0)] == ["T:C:1"]
            assert HERE in news
            assert not losing.done()
            losing.cancel()
    assert told(lines) == ["store.unavailable", "store.available"]
    (back,) = (line for line in lines if line["event"] == "store.available")
    assert back["after_s"] >= 1


async def test_a_store_that_hangs_is_waited_for_as_one_that_is_gone(redis):
    async with process(redis, "here", lease_s=10) as (runs, _):
        lease = await _claimed(runs)
        os.kill(redis.pid, signal.SIGSTOP)
        try:
            admitting = asyncio.create_task(runs.admit(HERE, message(1)))
            done, _ = await asyncio.wait([admitting], timeout=1)
            assert not done
        finally:
            os.kill(redis.pid, signal.SIGCONT)
        async with asyncio.timeout(15):
            await admitting
        assert [entry.id for entry in await lease.fetch(0)] == ["T:C:1"]


async def test_after_an_outage_the_owner_keeps_its_conversation_though_its_lease_has_run_out_meanwhile(redis):
    async with process(redis, "here", lease_s=1) as (one, _), process(redis, "there", lease_s=1) as (two, _):
        lease = await _claimed(one)
        losing = asyncio.create_task(lease.lost())
        await lease.write(StateChanges(run={"id": "r"}))
        redis.kill()
        claiming = asyncio.create_task(two.claim(HERE))
        await asyncio.sleep(1.5)  # longer than the lease
        redis.start()
        async with asyncio.timeout(10):
            assert await claiming is None
        await lease.write(StateChanges(run={"id": "r", "step": 2}))
        assert not losing.done()
        losing.cancel()


async def test_after_an_outage_what_nobody_owned_is_looked_after_at_once(redis):
    async with process(redis, "here", lease_s=30) as (one, _):
        lease = await _claimed(one)
        await one.admit(HERE, message(1))
        await lease.hand_over()
        async with process(redis, "there", lease_s=30) as (two, news):
            redis.kill()
            claiming = asyncio.create_task(two.claim("T:C:2.0"))
            await asyncio.sleep(0.3)
            redis.start()
            async with asyncio.timeout(10):
                await claiming
                while HERE not in news:  # noqa: ASYNC110 - it is a list
                    await asyncio.sleep(0.02)
            assert await two.claim(HERE) is not None


async def test_more_than_a_thousand_entries_do_not_wait_for_a_store_that_is_away(redis):
    async with process(redis, "here") as (runs, _):
        redis.kill()
        waiting = [asyncio.create_task(runs.admit(f"T:C:{number}", message(number))) for number in range(1000)]
        async with asyncio.timeout(30):
            while True:
                try:
                    async with asyncio.timeout(0.5):
                        await runs.admit(HERE, message(1))
                except TimeoutError:
                    continue  # none of them had found the store away by then
                except StoreUnavailable:
                    break
        redis.start()
        async with asyncio.timeout(30):
            assert all(await asyncio.gather(*waiting))
        assert await runs.admit(HERE, message(1))


async def test_the_end_does_not_wait_for_a_store_that_is_away(redis):
    async with process(redis, "here") as (runs, _):
        lease = await _claimed(runs)
        redis.kill()
        ending = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - ending < 3
    async with asyncio.timeout(1):
        await lease.lost()
