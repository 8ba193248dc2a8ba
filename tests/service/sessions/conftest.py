"""Session managers with one agent, over a store in memory or an SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import InstanceConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces


@pytest.fixture
def manager(tmp_path: Path) -> Callable[..., InProcessSessionManager]:
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
def started(tmp_path: Path, manager: Callable[..., InProcessSessionManager]) -> Callable[..., Any]:
    """Start a manager as `manager` creates it, with the store in the test's SQLite file."""

    @asynccontextmanager
    async def start(*names: str, **fields: Any) -> AsyncIterator[InProcessSessionManager]:
        async with (
            aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store,
            manager(*names, store=store, **fields) as sessions,
        ):
            yield sessions

    return start
