"""A Slack workspace, a model, stores, processes that share one, and configuration files for the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest
from anthropic_server import AnthropicServer, message, text
from ports import free_port
from redis_cluster import RedisCluster, redis_cluster
from redis_server import RedisServer, redis_server
from slack_environment import SlackEnvironment

from connector.protocols import InboxEntry
from local_slack import LocalSlack
from service.runs import StoredRuns
from service.store import open_run_store
from service.store.base import RunStore


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack() as slack:
        yield slack


@pytest.fixture
def environment(slack: LocalSlack, tmp_path: Path) -> SlackEnvironment:
    return SlackEnvironment.of(slack, tmp_path)


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicServer]:
    """A Messages API that answers `fine`; this process and the services of `environment` use it."""
    async with AnthropicServer() as model:
        for name, value in model.env.items():
            monkeypatch.setenv(name, value)
        model.otherwise = lambda _: message(text("fine"))
        yield model


@pytest.fixture
def model_env(model: AnthropicServer) -> dict[str, str]:
    """Environment variables that point a service process to `model`."""
    return model.env


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a configuration file; relative paths in it start at `tmp_path`."""

    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture(name="free_port")
def a_free_port() -> int:
    return free_port()


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
def durable_redis() -> Iterator[RedisServer]:
    """A Redis server that keeps all committed data when it is killed."""
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


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
    return f"sqlite:{tmp_path}/kept.db"


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty SQLite file, then of an empty Redis server."""
    return request.getfixturevalue(f"{request.param}_url")


class Process:
    """A `StoredRuns`, and the conversations of workspace T that it was asked to work on."""

    def __init__(self, runs: StoredRuns) -> None:
        self.runs = runs
        self.woken: list[str] = []
        self._changed = asyncio.Event()
        runs.watch("T", self._wake)

    def _wake(self, conversation_id: str) -> None:
        self.woken.append(conversation_id)
        self._changed.set()

    async def wakes(self, conversation_id: str = "T:C:1.0", within_s: float = 5) -> None:
        """Wait until it is asked to work on this conversation; earlier requests count."""
        async with asyncio.timeout(within_s):
            while conversation_id not in self.woken:
                self._changed.clear()
                await self._changed.wait()

    async def owns(self, conversation_id: str = "T:C:1.0", within_s: float = 15):
        """Claim a conversation until it succeeds; return the lease."""
        async with asyncio.timeout(within_s):
            while (lease := await self.runs.claim(conversation_id)) is None:  # noqa: ASYNC110 - no event at expiry
                await asyncio.sleep(0.02)
        return lease

    async def admit(self, number: int, conversation_id: str = "T:C:1.0") -> bool:
        entry = InboxEntry(f"T:C:{number}", "message", {"text": f"message {number}"})
        return await self.runs.admit(conversation_id, entry, "alpha")


@pytest.fixture
async def store(url: str) -> AsyncIterator[RunStore]:
    async with aclosing(await open_run_store(url)) as store:
        yield store


@pytest.fixture
def process(request: pytest.FixtureRequest):
    """Start processes over `store`, or over `redis_url` if it is given."""
    owners = iter(("one", "two", "three"))

    @asynccontextmanager
    async def start(lease_s: float = 10, redis_url: str = "", **options) -> AsyncIterator[Process]:
        if not redis_url:
            url, store = request.getfixturevalue("url"), request.getfixturevalue("store")
            redis_url = url if url.startswith("redis:") else ""
        async with AsyncExitStack() as stack:
            if redis_url:
                store = await stack.enter_async_context(aclosing(await open_run_store(redis_url)))
            yield Process(await stack.enter_async_context(StoredRuns(store, next(owners), lease_s, **options)))

    return start
