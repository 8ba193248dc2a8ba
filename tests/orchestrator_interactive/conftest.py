"""Fixtures for the tests of the agent: coordinators, captured logs, a mount plan, and stores of conversation logs."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis_cluster import RedisCluster, redis_cluster
from redis_server import RedisServer, redis_server
from structlog.testing import capture_logs

from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator


class Logs:
    """The captured log; `tell` returns whether an entry of the level has all these words."""

    def __init__(self, entries: Sequence[Any]) -> None:
        self._entries = entries

    def tell(self, level: str, *words: str) -> bool:
        return any(e["log_level"] == level and all(word in str(e) for word in words) for e in self._entries)

    def named(self, event: str) -> list[Any]:
        return [e for e in self._entries if e["event"] == event]

    def count(self) -> int:
        return len(self._entries)


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as entries:
        yield Logs(entries)


@pytest.fixture
def make_coordinator() -> Callable[..., ModuleCoordinator]:
    """A coordinator; keyword arguments are the policy in the `session` section."""

    def make(
        *, approvals: Any = None, display: Any = None, config: dict[str, Any] | None = None, **policy: Any
    ) -> ModuleCoordinator:
        plan = {"session": {"orchestrator": "o", "context": "c", **policy}, **(config or {})}
        session = AmplifierSession(
            plan, session_id="here", parent_id="above", approval_system=approvals, display_system=display
        )
        return session.coordinator

    return make


@pytest.fixture
def coordinator(make_coordinator: Callable[..., ModuleCoordinator]) -> ModuleCoordinator:
    return make_coordinator()


@pytest.fixture
def shipped_plan(tmp_path: Path) -> dict[str, Any]:
    """A mount plan of modules that ship with the project, and need neither a key nor a network."""
    return {
        "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
        "providers": [{"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}],
        "tools": [
            {"module": "tool-filesystem", "config": {"root": str(tmp_path / "workspace")}},
            {"module": "tool-todo"},
        ],
    }


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
