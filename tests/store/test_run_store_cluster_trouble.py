"""A Redis cluster of which a part is away."""

from __future__ import annotations

import asyncio

import pytest
from redis_cluster import redis_cluster
from run_store_cases import LONG_S, admitted, entry, names_of

from connector.protocols import Changes
from orchestrator_interactive.interactions.errors import StoreAway, StoreError
from service.store import open_run_store

NAMES = [f"c{number}" for number in range(30)]


async def test_conversations_are_on_every_node(cluster, cluster_url):
    store = await open_run_store(cluster_url)
    await asyncio.gather(*[admitted(store, name, 1) for name in NAMES])
    assert all(node.ask("KEYS", "runs:{c*") for node in cluster.nodes)
    assert await store.conversations() == sorted(NAMES)
    await store.aclose()


async def test_a_node_that_is_killed_and_comes_back_has_lost_nothing_that_was_admitted():
    with redis_cluster(
        "--appendonly", "yes", "--appendfsync", "always", "--cluster-require-full-coverage", "no"
    ) as cluster:
        store = await open_run_store(cluster.url)
        await asyncio.gather(*[admitted(store, name, 1) for name in NAMES])
        claims = {name: await store.claim(name, "a", LONG_S) for name in NAMES}
        cluster.nodes[2].kill()
        ended = await asyncio.gather(*[store.admit(name, entry(2), None) for name in NAMES], return_exceptions=True)
        assert {type(each).__name__ for each in ended} <= {"Admission", "StoreAway"}
        assert StoreAway in {type(each) for each in ended}
        cluster.nodes[2].start()
        cluster.wait()
        for name, first in zip(NAMES, ended, strict=True):
            again = await store.admit(name, entry(2), None)
            assert again.is_new == isinstance(first, StoreAway)
            await store.write(name, claims[name].token, Changes(run={"id": name}))
            assert names_of(await store.fetch(name, claims[name].token, 0)) == ["1", "2"]
        await store.aclose()


async def test_a_database_of_another_number_is_refused(cluster):
    with pytest.raises(StoreError, match=r"is a cluster, which has the database 0 only: end the URL with /0"):
        await open_run_store(f"redis://127.0.0.1:{cluster.nodes[0].port}/3")
