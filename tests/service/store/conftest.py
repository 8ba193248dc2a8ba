"""The stores that runs can be kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis_cluster import redis_cluster
from redis_server import redis_server

from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from redis_cluster import RedisCluster
    from redis_server import RedisServer

    from service.store.base import RunStore


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A Redis server for all tests of this process; `redis_url` empties it."""
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    """A Redis cluster for all tests of this process; `cluster_url` empties it."""
    with redis_cluster() as cluster:
        yield cluster


@pytest.fixture
def redis_url(redis: RedisServer) -> str:
    redis.ask("FLUSHALL")
    return redis.url


@pytest.fixture
def cluster_url(cluster: RedisCluster) -> str:
    cluster.empty()
    return cluster.url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/logs.db"


@pytest.fixture(params=["sqlite", "redis", "cluster"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each of the stores in turn, with nothing in it."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[RunStore]:
    """Each of the stores in turn, open, with nothing in it."""
    store = await open_run_store(store_url)
    yield store
    await store.aclose()
