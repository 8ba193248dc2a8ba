"""`tool-filesystem`: the files of one conversation's workspace, and nothing beyond it."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads the annotation at run time
from typing import TYPE_CHECKING, Any

from pydantic import Field

from orchestrator_interactive.modules.tool_filesystem.tools import ALL_TOOLS
from orchestrator_interactive.modules.tool_filesystem.workspace import Workspace
from orchestrator_interactive.options import Options, read

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["FilesystemOptions", "mount"]


class FilesystemOptions(Options):
    root: Path = Field(
        description="the workspace folder of this conversation, such as /var/lib/workspaces/C1-17; it is created."
    )
    max_read_bytes: int = Field(default=200_000, gt=0)
    max_results: int = Field(default=200, gt=0)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `list_files`, `read_file`, `search_files` and `write_file`.

    Raises:
        ValueError: no `root`, an unknown option, or a value out of range.
    """
    options = read(FilesystemOptions, config, "tool-filesystem")
    workspace = Workspace(options.root)
    for kind in ALL_TOOLS:
        tool = kind(workspace, options.max_read_bytes, options.max_results)
        await coordinator.mount("tools", tool, name=tool.name)
