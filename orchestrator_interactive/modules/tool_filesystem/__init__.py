"""`tool-filesystem`: access to the files of a conversation's workspace folder only."""

from __future__ import annotations

import re
import secrets
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import structlog
from pydantic import AfterValidator, AliasChoices, Field, field_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import run_blocking
from orchestrator_interactive.loop.tool_results import MAX_CHARS
from orchestrator_interactive.modules.tool_filesystem.quota import MB, Limits
from orchestrator_interactive.modules.tool_filesystem.tools import ALL_TOOLS
from orchestrator_interactive.modules.tool_filesystem.workspace import Access, WorkspaceError, WorkspaceFolder

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["FilesystemOptions", "mount"]

log = structlog.get_logger(__name__)

_MAX_LINE = 10_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_MAX_OF_A_NAME = 60
_MOUNT = re.compile(r"\w[\w-]*", re.ASCII)


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as e:
        raise ValueError(f"{path.parts[0]} is not a home folder; write an absolute path, or one in `root`") from e


_Path = Annotated[Path, AfterValidator(_expanded)]


class FilesystemOptions(Options):
    """Options of `tool-filesystem`.

    `root`, or `working_dir`, is the workspace folder; by default the session's capability `session.working_dir`,
    otherwise the process's working directory.

    Args:
        allowed_read_paths: files and folders that may be read, relative to `root`; all of the workspace unless set.
        allowed_write_paths: the same for writing.
        denied_write_paths: files and folders that must not be written, even if they are allowed.
        mounts: folders outside of the workspace that may be read, by the names under which they are shown in it.
        quota_mb: total size of the files in the folder, in megabytes; unlimited unless set.
        quota_files: number of files and folders in it; unlimited unless set.
        reserve_mb: free space that a write leaves on the disk, in megabytes.
    """

    without_effect: ClassVar[frozenset[str]] = frozenset({"require_approval"})

    root: _Path | None = Field(None, validation_alias=AliasChoices("root", "working_dir"))
    allowed_read_paths: tuple[_Path, ...] | None = None
    allowed_write_paths: tuple[_Path, ...] | None = None
    denied_write_paths: tuple[_Path, ...] = ()
    mounts: dict[str, _Path] = Field(default_factory=dict)
    max_read_bytes: int = Field(default=200_000, gt=0)
    max_results: int = Field(default=200, gt=0)
    quota_mb: int | None = Field(default=None, gt=0)
    quota_files: int | None = Field(default=None, gt=0)
    reserve_mb: int = Field(default=0, ge=0)

    @field_validator("mounts")
    @classmethod
    def _are_folders(cls, mounts: dict[str, Path]) -> dict[str, Path]:
        for name, path in mounts.items():
            if not _MOUNT.fullmatch(name):
                raise ValueError(f"{name!r} must be one word of letters, digits, `_` and `-`")
            if not path.is_absolute() or not path.is_dir():
                raise ValueError(f"{path} must be the absolute path of a folder that exists")
        return mounts

    def limits(self) -> Limits:
        """Return the limits of the folder."""
        quota_bytes = None if self.quota_mb is None else self.quota_mb * MB
        return Limits(quota_bytes, self.quota_files, self.reserve_mb * MB)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `list_files`, `read_file`, `search_files`, `write_file`, `edit_file`, `move_file` and `delete_file`.

    Registers the capability `workspace.save(name, text)`, which writes a text to a new file for `read_file` and returns
    its path. It raises ValueError with a readable message if the file cannot be written.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(FilesystemOptions, config, "tool-filesystem")
    root = options.root or Path(coordinator.get_capability("session.working_dir") or ".")
    access = Access(options.allowed_read_paths, options.allowed_write_paths, options.denied_write_paths, options.mounts)
    workspace = WorkspaceFolder(root, options.limits(), access)
    if workspace.unreachable:
        log.warning(
            "tool_filesystem.paths_outside_workspace",
            paths=[str(path) for path in workspace.unreachable],
            what_to_do="choose a `root` that contains them; allowed paths only restrict access inside it",
        )

    unrestricted = WorkspaceFolder(root, options.limits())  # the allowed paths are for the model's own writes

    async def save(name: str, text: str) -> str:
        return await run_blocking(workspace.root, _save, unrestricted, name, text)

    coordinator.register_capability("workspace.save", save)
    for kind in ALL_TOOLS:
        tool = kind(workspace, options.max_read_bytes, options.max_results)
        await coordinator.mount("tools", tool, name=tool.name)


def _save(workspace: WorkspaceFolder, name: str, text: str) -> str:
    path = f"results/{_UNSAFE.sub('-', name)[:_MAX_OF_A_NAME]}-{secrets.token_hex(4)}.txt"
    try:
        workspace.write(path, _with_short_lines(text).encode(errors="replace"), max_bytes=4 * MAX_CHARS)
    except WorkspaceError as e:
        raise ValueError(str(e)) from e
    return path


def _with_short_lines(text: str) -> str:
    """Break lines that are too long for `read_file` to read in parts."""
    start, cuts = 0, [0]
    while len(text) - start > _MAX_LINE:
        end = text.rfind("\n", start, start + _MAX_LINE + 1)
        start = end + 1 if end >= 0 else start + _MAX_LINE
        if end < 0:
            cuts.append(start)
    return "\n".join(text[begin:end] for begin, end in pairwise([*cuts, len(text)]))
