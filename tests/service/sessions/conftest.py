"""Session managers with one agent, over a store in memory or an SQLite file."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from connector.protocols import SessionManager
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import InstanceConfig, PersonaConfig, WorkspaceConfig
from service.config.sessions import SessionsConfig
from service.sessions.host import LocalHost
from service.sessions.manager import InProcessSessionManager
from service.sessions.remote.client import GrpcSessionManager
from service.sessions.remote.listening import listening
from service.sessions.remote.server import RemoteHost
from service.sessions.workspaces import Workspaces


@asynccontextmanager
async def over_grpc(sessions: InProcessSessionManager, options: dict[str, Any]) -> AsyncIterator[GrpcSessionManager]:
    """Serve the sessions of a manager over a socket; gives the manager at its other end, with the same host."""
    host = sessions._host = RemoteHost()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config = SessionsConfig(listen=f"127.0.0.1:{port}")
    local = options.get("host") or LocalHost({})
    async with (
        sessions,
        listening(config, sessions, host, 1),
        GrpcSessionManager(f"127.0.0.1:{port}", None, sessions._instances, sessions._store, local) as remote,
    ):
        yield remote


@pytest.fixture
def manager(
    request: pytest.FixtureRequest, local_manager: Callable[..., InProcessSessionManager]
) -> Callable[..., Any]:
    """Create a manager as `local_manager` does; with the mark `BOTH`, also one whose sessions are behind a socket."""
    if getattr(request, "param", "in_process") == "in_process":
        return local_manager
    return lambda *names, **given: over_grpc(local_manager(*names, **given), given.get("options") or {})


@pytest.fixture
def local_manager(tmp_path: Path) -> Callable[..., InProcessSessionManager]:
    """Create a manager of instances with these names (default: alpha); `fields` are the instances' own."""

    def create(
        *names: str,
        store: LogStore | None = None,
        workspace: WorkspaceConfig | None = None,
        provider: str = "provider-anthropic",
        options: dict[str, Any] | None = None,
        **fields: Any,
    ) -> InProcessSessionManager:
        instance = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"), **fields)
        workspaces = Workspaces(workspace or WorkspaceConfig(root=tmp_path / "files"))
        store = MemoryStore() if store is None else store
        instances = dict.fromkeys(names or ("alpha",), instance)
        return InProcessSessionManager(instances, provider, workspaces, store, **(options or {}))

    return create


@pytest.fixture
def started(tmp_path: Path, manager: Callable[..., Any]) -> Callable[..., Any]:
    """Start a manager as `manager` creates it, with the store in the test's SQLite file."""

    @asynccontextmanager
    async def start(*names: str, **fields: Any) -> AsyncIterator[SessionManager]:
        async with (
            aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store,
            manager(*names, store=store, **fields) as sessions,
        ):
            yield sessions

    return start
