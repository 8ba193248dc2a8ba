"""A Slack workspace, a model, stores and configuration files for the tests of the service."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from anthropic_server import AnthropicServer, message, text
from redis_cluster import RedisCluster, redis_cluster
from redis_server import RedisServer, redis_server
from slack_environment import SlackEnvironment

from local_slack import LocalSlack


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
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.otherwise = lambda _: message(text("fine"))
        yield model


@pytest.fixture
def model_env(model: AnthropicServer) -> dict[str, str]:
    """Environment variables that point a service process to `model`."""
    return {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": model.base_url}


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a configuration file; relative paths in it start at `tmp_path`."""

    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


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
