"""Runs during outages of a real Redis, and after the death of the process that owns them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from connector.protocols import StateChanges
from orchestrator_interactive.storage.errors import StoreUnavailable

HERE, THERE = "T:C:1.0", "T:C:2.0"
RUN = StateChanges(run={"id": "r"})
# Claims a conversation; for each line of its input, writes to it and prints whether it still owns it.
OWNER = """
import asyncio, sys
from connector.protocols import StateChanges, LeaseLost
from service.runs import StoredRuns
from service.store import open_run_store

async def main(url, conversation_id):
    async with StoredRuns(await open_run_store(url), "another", 1) as runs:
        runs.watch(conversation_id.partition(":")[0], lambda _: None)
        lease = await runs.claim(conversation_id)
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
def process(process, durable_redis):
    return lambda lease_s=10: process(lease_s, durable_redis.url)


@asynccontextmanager
async def other_owner(url):
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, url, HERE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await answer_of(owner) == "owns"
        yield owner
    finally:
        if owner.returncode is None:
            owner.send_signal(signal.SIGCONT)
            owner.kill()
        await owner.communicate()


async def answer_of(owner):
    async with asyncio.timeout(20):
        while not (line := await owner.stdout.readline()).startswith((b"owns", b"lost")):
            assert line
    return line.decode().strip()


async def test_the_lease_of_a_killed_process_expires_and_another_takes_over(durable_redis, process):
    async with other_owner(durable_redis.url) as owner, process() as one:
        await asyncio.sleep(1.5)  # longer than its lease, which it renews
        assert await one.runs.claim(HERE) is None
        owner.kill()
        assert (await one.owns()).claim.run == {"id": "r"}


async def test_a_suspended_process_finds_its_lease_lost_and_writes_nothing(durable_redis, process):
    async with other_owner(durable_redis.url) as owner, process() as one:
        owner.send_signal(signal.SIGSTOP)
        lease = await one.owns()
        owner.send_signal(signal.SIGCONT)
        owner.stdin.write(b"\n")
        assert await answer_of(owner) == "lost"
        await lease.hand_over()
        assert (await one.owns()).claim.run == {"id": "r"}


async def test_steps_wait_for_the_end_of_an_outage_and_the_lease_is_kept(durable_redis, process):
    with capture_logs() as lines:
        async with process(lease_s=2) as one:
            lease = await one.owns()
            losing = asyncio.create_task(lease.lost())
            durable_redis.kill()
            steps = [asyncio.create_task(step) for step in (one.admit(1), lease.write(RUN), one.runs.claim(THERE))]
            done, _ = await asyncio.wait(steps, timeout=2.5)  # longer than the lease
            assert not done
            durable_redis.start()
            async with asyncio.timeout(10):
                admitted, _, other = await asyncio.gather(*steps)
            assert (admitted, other is not None) == (True, True)
            assert [entry.id for entry in await lease.fetch(0)] == ["T:C:1"]
            assert HERE in one.woken
            assert not losing.done()
            losing.cancel()
    logged = [line for line in lines if line["event"].startswith("store.")]
    assert [line["event"] for line in logged] == ["store.unavailable", "store.available"]
    assert logged[1]["after_s"] >= 1


async def test_a_hanging_store_counts_as_an_outage(durable_redis, process):
    async with process() as one:
        lease = await one.owns()
        os.kill(durable_redis.pid, signal.SIGSTOP)
        try:
            admitting = asyncio.create_task(one.admit(1))
            done, _ = await asyncio.wait([admitting], timeout=1)
            assert not done
        finally:
            os.kill(durable_redis.pid, signal.SIGCONT)
        async with asyncio.timeout(15):
            await admitting
        assert [entry.id for entry in await lease.fetch(0)] == ["T:C:1"]


async def test_an_owner_keeps_a_lease_that_expired_during_an_outage(durable_redis, process):
    async with process(lease_s=1) as one, process(lease_s=1) as two:
        lease = await one.owns()
        losing = asyncio.create_task(lease.lost())
        await lease.write(RUN)
        durable_redis.kill()
        claiming = asyncio.create_task(two.runs.claim(HERE))
        await asyncio.sleep(1.5)  # longer than the lease
        durable_redis.start()
        async with asyncio.timeout(10):
            assert await claiming is None
        await lease.write(StateChanges(run={"id": "r", "step": 2}))
        assert not losing.done()
        losing.cancel()


async def test_conversations_without_an_owner_are_resumed_directly_after_an_outage(durable_redis, process):
    async with process(lease_s=30) as one:
        lease = await one.owns()
        await one.admit(1)
        await lease.hand_over()
        async with process(lease_s=30) as two:
            durable_redis.kill()
            claiming = asyncio.create_task(two.runs.claim(THERE))
            await asyncio.sleep(0.3)
            durable_redis.start()
            async with asyncio.timeout(10):
                await claiming
            await two.wakes(HERE, within_s=10)
            assert await two.runs.claim(HERE) is not None


async def test_at_most_a_thousand_entries_wait_during_an_outage(durable_redis, process):
    async with process() as one:
        durable_redis.kill()
        waiting = [asyncio.create_task(one.admit(number, f"T:C:{number}")) for number in range(1000)]
        async with asyncio.timeout(30):
            while True:
                try:
                    async with asyncio.timeout(0.5):
                        await one.admit(1)
                except TimeoutError:
                    continue  # not all have found the store away
                except StoreUnavailable:
                    break
        durable_redis.start()
        async with asyncio.timeout(30):
            assert all(await asyncio.gather(*waiting))
        assert await one.admit(1)


async def test_a_process_does_not_wait_for_the_end_of_an_outage_to_end(durable_redis, process):
    async with asyncio.timeout(None) as limit, process() as one:
        lease = await one.owns()
        durable_redis.kill()
        limit.reschedule(asyncio.get_running_loop().time() + 3)
    async with asyncio.timeout(1):
        await lease.lost()
