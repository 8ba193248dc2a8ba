"""A Redis cluster that loses a node or moves a conversation."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from itertools import count

import pytest
from redis_cluster import redis_cluster
from run_store_cases import LONG_S, T1, C, admitted, entry, names_of, within

from connector.protocols import StateChanges
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.store import open_run_store
from service.store.redis.index import keys

NAMES = [f"c{number}" for number in range(12)]


async def test_conversations_are_distributed_over_all_nodes(cluster, cluster_url):
    async with aclosing(await open_run_store(cluster_url)) as store:
        await asyncio.gather(*[admitted(store, name, 1) for name in NAMES])
        assert all(node.ask("KEYS", "runs:{c*") for node in cluster.nodes)
        assert await store.conversations() == sorted(NAMES)


async def test_a_killed_node_keeps_every_acknowledged_entry():
    with redis_cluster("--appendonly", "yes", "--appendfsync", "always") as cluster:
        store = await open_run_store(cluster.url)
        claims = {name: await store.claim(name, "a", LONG_S) for name in NAMES}
        acknowledged, numbers = {name: [] for name in NAMES}, count()

        async def admit(name, number):
            try:
                assert (await store.admit(name, entry(number), None)).is_new
            except StoreUnavailable:
                return False
            acknowledged[name].append(f"{number}")
            return True

        cluster.nodes[2].kill()
        # At first only its conversations are away; as soon as the other nodes notice, all are.
        async with within(20):
            while any(await asyncio.gather(*[admit(name, number) for name in NAMES for number in [next(numbers)]])):
                pass
        cluster.nodes[2].start()
        cluster.wait()
        async with within(20):
            while left := [name for name in NAMES if "last" not in acknowledged[name]]:
                await asyncio.gather(*[admit(name, "last") for name in left])
        for name in NAMES:
            await store.write(name, claims[name].token, StateChanges(run={"id": name}))
            assert set(names_of(await store.fetch(name, claims[name].token, 0))) >= set(acknowledged[name])
        assert len({len(names) for names in acknowledged.values()}) > 1
        await store.aclose()


async def test_the_leases_of_a_silent_process_end_on_the_nodes_that_are_left():
    with redis_cluster("--cluster-require-full-coverage", "no") as cluster:
        names = [f"{T1}:C:{number}" for number in range(90)]
        indexed, owners = cluster.node_of("runs:{index}:all"), cluster.node_of("runs:owners")
        lost = next(node for node in cluster.nodes if node not in (indexed, owners))
        store = await open_run_store(cluster.url)
        names.sort(key=lambda name: cluster.node_of(keys(name)[0]) is not lost)
        claims = {name: await store.claim(name, "dead", LONG_S) for name in names}
        lost.kill()
        ending = asyncio.create_task(store.end_leases("dead", 0.0))
        await asyncio.sleep(0)  # until it has begun
        await store.renew(names[-1], claims[names[-1]].token, LONG_S)  # the process was only suspended
        with pytest.raises(StoreUnavailable):
            await ending
        left = [name for name in names if cluster.node_of(keys(name)[0]) is not lost]
        assert [name for name in left if not await store.claim(name, "next", LONG_S)] == names[-1:]
        await store.aclose()


async def test_a_conversation_in_use_moves_to_another_node_without_loss(cluster, cluster_url):
    store, policy, used = await open_run_store(cluster_url), StoreRetryPolicy(), asyncio.Event()
    claim = await store.claim(C, "a", LONG_S)
    new = []

    async def use():
        for number in count(1):
            each = entry(number)
            if (await policy.call(lambda each=each: store.admit(C, each, "owl"))).is_new:
                new.append(number)
            changes = StateChanges(run={"id": number}, closed={number - 5: ""})
            await policy.call(lambda changes=changes: store.write(C, claim.token, changes))
            used.set()

    async def wait_for_use(timeout_s):
        used.clear()
        async with asyncio.timeout(timeout_s):
            await used.wait()

    using = asyncio.create_task(use())
    await wait_for_use(20)
    for _ in cluster.moving(keys(C)[0]):  # key by key
        with suppress(TimeoutError):
            await wait_for_use(0.1)
    await wait_for_use(20)
    using.cancel()
    await asyncio.wait([using])
    known = await store.record(C)
    assert [int(name[1:]) for name in known.order][: len(new)] == new == list(range(1, len(new) + 1))
    assert known.count.accepted - len(new) in (0, 1)  # the last admission was in progress
    await store.aclose()


async def test_a_database_number_other_than_0_is_refused(cluster):
    with pytest.raises(StoreError, match=r"is a cluster, which only has database 0: end the URL with /0"):
        await open_run_store(f"redis://127.0.0.1:{cluster.nodes[0].port}/3")
