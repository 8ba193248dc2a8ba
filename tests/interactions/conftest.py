"""The stores that a conversation log can lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis_cluster import redis_cluster
from redis_server import redis_server

from orchestrator_interactive.interactions.stores import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from redis_cluster import RedisCluster
    from redis_server import RedisServer

    from orchestrator_interactive.interactions.stores.base import LogStore


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
def cluster_url(cluster: RedisCluster) -> str:
    cluster.empty()
    return cluster.url


@pytest.fixture
def redis_url(redis: RedisServer) -> str:
    redis.ask("FLUSHALL")
    return redis.url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/logs.db"


@pytest.fixture(params=["memory", "sqlite", "redis", "cluster"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each of the stores in turn, with nothing in it; Redis as a single server and as a cluster."""
    return "memory:" if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")


@pytest.fixture(params=["sqlite", "redis", "cluster"])
def lasting_url(request: pytest.FixtureRequest) -> str:
    """Each of the stores that outlive the process in turn, with nothing in it."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[LogStore]:
    """Each of the stores in turn, open, with nothing in it."""
    store = await open_store(store_url)
    yield store
    await store.aclose()
