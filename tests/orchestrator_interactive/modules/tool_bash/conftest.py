"""`tool-bash`, mounted for each kind of sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sandboxes import require

from orchestrator_interactive.kernel import ModuleCoordinator
from orchestrator_interactive.modules import tool_bash

Run = Callable[..., Awaitable[str]]


@pytest.fixture(params=["bubblewrap", "landlock"])
def kind(request: pytest.FixtureRequest) -> str:
    require(request.param)
    return str(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file next to the workspace."""
    path = tmp_path / "outside.txt"
    path.write_text("of-others")
    return path


@pytest.fixture
def mounted(coordinator: ModuleCoordinator, workspace: Path) -> Callable[..., Awaitable[Any]]:
    async def mount(**options: Any) -> Any:
        await tool_bash.mount(coordinator, {"root": str(workspace), "without_approval": True, **options})
        return coordinator.get("tools", "bash")

    return mount


@pytest.fixture
def run(mounted: Callable[..., Awaitable[Any]], kind: str) -> Run:
    """Run a command in a sandbox of the kind, and return its result."""

    async def call(command: str, *, timeout_s: float | None = None, **options: Any) -> str:
        tool = await mounted(**{"sandbox": kind, "timeout_s": 20, **options})
        result = await tool.execute({"command": command, "timeout_s": timeout_s})
        return str(result.output if result.success else result.error["message"])

    return call
