"""A Redis cluster of which a part is away."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count

import pytest
from redis_cluster import redis_cluster
from run_store_cases import LONG_S, C, admitted, entry, names_of, within

from connector.protocols import StateChanges
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.store import open_run_store
from service.store.redis.index import keys
from service.store.retry import StoreRetryPolicy

NAMES = [f"c{number}" for number in range(12)]


async def test_conversations_are_on_every_node(cluster, cluster_url):
    store = await open_run_store(cluster_url)
    await asyncio.gather(*[admitted(store, name, 1) for name in NAMES])
    assert all(node.ask("KEYS", "runs:{c*") for node in cluster.nodes)
    assert await store.conversations() == sorted(NAMES)
    await store.aclose()


async def test_a_node_that_is_killed_and_comes_back_has_lost_nothing_that_was_admitted():
    with redis_cluster("--appendonly", "yes", "--appendfsync", "always") as cluster:
        store = await open_run_store(cluster.url)
        claims = {name: await store.claim(name, "a", LONG_S) for name in NAMES}
        kept = {name: [] for name in NAMES}

        async def admit(name, number):
            try:
                assert (await store.admit(name, entry(number), None)).is_new
            except StoreUnavailable:
                return False
            kept[name].append(f"{number}")
            return True

        numbers = count()
        cluster.nodes[2].kill()
        # First those are away that lie there, then, as the others find out, all of them.
        async with within(20):
            while any(await asyncio.gather(*[admit(name, number) for name in NAMES for number in [next(numbers)]])):
                pass
        cluster.nodes[2].start()
        cluster.wait()
        async with within(20):
            while not all(await asyncio.gather(*[admit(name, "last") for name in NAMES if "last" not in kept[name]])):
                pass
        for name in NAMES:
            await store.write(name, claims[name].token, StateChanges(run={"id": name}))
            assert set(names_of(await store.fetch(name, claims[name].token, 0))) >= set(kept[name])
        assert len({len(names) for names in kept.values()}) > 1
        await store.aclose()


async def test_a_conversation_that_moves_to_another_node_while_it_is_used_loses_nothing(cluster, cluster_url):
    store, patience, there = await open_run_store(cluster_url), StoreRetryPolicy(), asyncio.Event()
    claim = await store.claim(C, "a", LONG_S)
    admitted: list[int] = []

    async def use() -> None:
        for number in count(1):
            each = entry(number)
            if (await patience.call(lambda each=each: store.admit(C, each, "owl"))).is_new:
                admitted.append(number)
            changes = StateChanges(run={"id": number}, closed={number - 5: ""})
            await patience.call(lambda changes=changes: store.write(C, claim.token, changes))
            there.set()

    async def used() -> None:
        """Return once it was used from here on, if that can be now."""
        there.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await there.wait()

    using = asyncio.create_task(use())
    await used()
    for _ in cluster.moving(keys(C)[0]):  # one key after the other
        await used()
    there.clear()
    async with within(20):
        await there.wait()
    using.cancel()
    await asyncio.wait([using])
    known = await store.record(C)
    assert [int(name[1:]) for name in known.order][: len(admitted)] == admitted == list(range(1, len(admitted) + 1))
    assert known.count.accepted - len(admitted) in (0, 1)  # the last one was on its way
    await store.aclose()


async def test_a_database_of_another_number_is_refused(cluster):
    with pytest.raises(StoreError, match=r"is a cluster, which only has database 0: end the URL with /0"):
        await open_run_store(f"redis://127.0.0.1:{cluster.nodes[0].port}/3")
