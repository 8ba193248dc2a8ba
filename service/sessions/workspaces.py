"""The folders in which conversations keep their files."""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.modules.tool_filesystem.quota import MB, NoRoom, free_bytes, is_left_behind
from service.config.config import ConfigError
from service.sessions import workspace_template as templates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.config.config import WorkspaceConfig

log = structlog.get_logger(__name__)

# Accessible to the service's user only.
_PRIVATE = 0o700
# Prefix of an incomplete copy of the template, followed by 8 characters. A killed process leaves it behind.
_COPY = ".new-"


class Workspaces:
    """One folder per conversation, initially a copy of the template."""

    def __init__(self, config: WorkspaceConfig) -> None:
        self._config = config

    @property
    def limits(self) -> dict[str, int]:
        """Return the options of `tool-filesystem` that limit a folder."""
        return self._config.limits()

    async def check(self) -> None:
        """Check that folders can be created, and make them inaccessible to other users.

        Raises:
            ConfigError: the root is not writable or is inside the template, or the template exceeds the quota.
        """
        await asyncio.to_thread(self._check)

    def folder(self, conversation_id: str) -> Path:
        return self._config.root / re.sub(r"[^\w.-]", "-", conversation_id)

    async def prepare(self, conversation_id: str) -> None:
        """Create the conversation's folder if it does not exist.

        Raises:
            OSError: the folder cannot be created.
            NoRoom: the disk has too little free space.
            WorkspaceTemplateTooLarge: the template exceeds the quota.
        """
        try:
            await asyncio.to_thread(self._prepare, self.folder(conversation_id))
        except OSError as e:
            if e.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoRoom(str(e)) from e
            raise

    def _check(self) -> None:
        root, template = self._config.root, self._config.template
        if template is not None and root.resolve().is_relative_to(template.resolve()):
            raise ConfigError(
                f"workspace.root: {root} is inside workspace.template, so new folders would contain copies of each "
                "other. Choose a folder outside of the template."
            )
        entries = template_entries(self._config)
        if problem := excess(self._config, entries):
            raise ConfigError(problem)
        for entry in entries:
            if entry.problem is not None:
                log.warning("workspace.template_entry_skipped", path=entry.path, problem=entry.problem)
        try:
            root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root):
                pass
        except OSError as e:
            raise ConfigError(
                f"workspace.root: {root} is not writable: {e.strerror}. "
                "Give the service write access, or choose another folder."
            ) from e
        _remove_old_copies(root)
        for folder in (root, *(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())):
            _make_private(folder)

    def _prepare(self, folder: Path) -> None:
        if folder.is_dir():
            return
        template = self._config.template
        if template is None:
            folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            return
        folder.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        entries = template_entries(self._config)
        if problem := excess(self._config, entries):
            raise templates.WorkspaceTemplateTooLarge(problem)
        _remove_old_copies(folder.parent)
        needed = sum(entry.size_bytes for entry in entries)
        if free_bytes(folder.parent) - needed < self._config.reserve_mb * MB:
            raise NoRoom(f"A copy of {template} needs {needed:,} bytes and would leave less than workspace.reserve_mb.")
        _copy_whole(template, folder)


def template_entries(config: WorkspaceConfig) -> list[templates.TemplateEntry]:
    """List the template, up to one entry more than a folder may hold."""
    return [] if config.template is None else list(islice(templates.entries(config.template), config.quota_files + 1))


def excess(config: WorkspaceConfig, entries: Sequence[templates.TemplateEntry]) -> str | None:
    """Return a sentence if a copy of the template exceeds the quota of its folder."""
    size_bytes = sum(entry.size_bytes for entry in entries)
    if len(entries) <= config.quota_files and size_bytes <= config.quota_mb * MB:
        return None
    return (
        f"workspace.template: {config.template} has {len(entries):,} or more files and folders with "
        f"{size_bytes / MB:,.1f} MB; a workspace may hold {config.quota_files:,} with {config.quota_mb:,} MB. Increase "
        "workspace.quota_files or workspace.quota_mb, or remove files from the template."
    )


def _make_private(folder: Path) -> None:
    try:
        if folder.stat().st_mode & 0o777 != _PRIVATE:
            folder.chmod(_PRIVATE)
    except OSError as e:
        log.warning("workspace.readable_by_others", folder=str(folder), problem=e.strerror)


def _remove_old_copies(root: Path) -> None:
    for copy in root.glob(f"{_COPY}{'?' * 8}"):
        with suppress(FileNotFoundError):  # another process has removed it
            if is_left_behind(copy):
                shutil.rmtree(copy, ignore_errors=True)


def _copy_whole(template: Path, folder: Path) -> None:
    """Copy to a temporary sibling folder and rename it, so that an interrupted copy is never used."""
    copy = Path(tempfile.mkdtemp(prefix=_COPY, dir=folder.parent))
    try:
        templates.copy(template, copy)
        copy.rename(folder)
    except OSError:
        # Another process may have created the folder first.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(copy, ignore_errors=True)
