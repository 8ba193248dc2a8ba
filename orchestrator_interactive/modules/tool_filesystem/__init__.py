"""`tool-filesystem`: the files of one conversation's workspace, and nothing beyond it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from orchestrator_interactive.kernel.interop import at_home
from orchestrator_interactive.modules.tool_filesystem.tools import ALL_TOOLS
from orchestrator_interactive.modules.tool_filesystem.workspace import Workspace
from orchestrator_interactive.options import Options, read

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["FilesystemOptions", "mount"]


class FilesystemOptions(Options):
    """Options of `tool-filesystem`.

    Without `root`, the workspace folder, it is the session's capability `session.working_dir`, or where there is none
    the folder that the process runs in.
    """

    root: Path | None = None
    max_read_bytes: int = Field(default=200_000, gt=0)
    max_results: int = Field(default=200, gt=0)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `list_files`, `read_file`, `search_files` and `write_file`.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = at_home(coordinator)
    options = read(FilesystemOptions, config, "tool-filesystem")
    workspace = Workspace(options.root or Path(coordinator.get_capability("session.working_dir") or "."))
    for kind in ALL_TOOLS:
        tool = kind(workspace, options.max_read_bytes, options.max_results)
        await coordinator.mount("tools", tool, name=tool.name)
