"""The folders in which conversations keep their files."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.modules.tool_filesystem.quota import MB, NoRoom, free_bytes, is_left_behind
from service.config.config_errors import ConfigError
from service.store.base import thread_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from service.config.config import WorkspaceConfig

log = structlog.get_logger(__name__)

# Accessible to the service's user only.
_PRIVATE = 0o700
# Prefix of a folder that is being copied from the template, or deleted, followed by 8 characters. A killed process
# leaves it behind.
_INCOMPLETE = ".new-"


class WorkspaceTemplateTooLarge(OSError):  # noqa: N818 - a fact about the template
    """A copy of the template exceeds the quota of a workspace folder; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """A file or folder of a template; `path` is relative to it. With a `problem`, it is not copied."""

    path: str
    is_folder: bool = False
    size_bytes: int = 0
    problem: str | None = None


class Workspaces:
    """One folder per conversation, initially a copy of the template."""

    def __init__(self, config: WorkspaceConfig) -> None:
        self._config = config
        # The options of `tool-filesystem` that limit a folder.
        self.limits: dict[str, int] = config.model_dump(include={"quota_mb", "quota_files", "reserve_mb"})

    @property
    def template(self) -> Path | None:
        """The folder that new folders are copies of."""
        return self._config.template

    async def check(self, *, creates: bool = True) -> None:
        """Check that folders can be created, and make them inaccessible to other users.

        Without `creates` nothing is changed.

        Raises:
            ConfigError: the root is not writable or is inside the template, or the template exceeds the quota.
        """
        await asyncio.to_thread(self._check, creates)

    def folder(self, conversation_id: str) -> Path:
        """Return the folder of a thread, which its workers share."""
        return self._config.root / re.sub(r"[^\w.-]", "-", thread_of(conversation_id))

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

    async def remove(self, conversation_id: str) -> None:
        """Delete the conversation's folder, if there is one and it is not that of a worker's thread.

        A run that begins before all files are deleted gets a new folder.
        """
        if thread_of(conversation_id) == conversation_id:
            await asyncio.to_thread(_remove, self.folder(conversation_id))

    def _check(self, creates: bool) -> None:
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
            if not creates:
                place = nearest(root)
                if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                return
            root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root):
                pass
        except OSError as e:
            raise ConfigError(
                f"workspace.root: {root} is not writable: {e.strerror}. "
                "Give the service write access, or choose another folder."
            ) from e
        _remove_left_behind(root)
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
            raise WorkspaceTemplateTooLarge(problem)
        _remove_left_behind(folder.parent)
        needed = sum(entry.size_bytes for entry in entries)
        if free_bytes(folder.parent) - needed < self._config.reserve_mb * MB:
            raise NoRoom(f"A copy of {template} needs {needed:,} bytes and would leave less than workspace.reserve_mb.")
        _copy_whole(template, folder)


def nearest(path: Path) -> Path:
    """Return the path if it exists, or the nearest folder above it that does."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def template_entries(config: WorkspaceConfig) -> list[TemplateEntry]:
    """List the template, up to one entry more than a folder may hold."""
    return [] if config.template is None else list(islice(_entries(config.template), config.quota_files + 1))


def excess(config: WorkspaceConfig, entries: Sequence[TemplateEntry]) -> str | None:
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


def _remove(folder: Path) -> None:
    old = folder.with_name(f"{_INCOMPLETE}{secrets.token_hex(4)}")
    with suppress(OSError):
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)


def _remove_left_behind(root: Path) -> None:
    for folder in root.glob(f"{_INCOMPLETE}{'?' * 8}"):
        with suppress(FileNotFoundError):  # another process has removed it
            if is_left_behind(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _copy_whole(template: Path, folder: Path) -> None:
    """Copy to a temporary sibling folder and rename it, so that an interrupted copy is never used."""
    copy = Path(tempfile.mkdtemp(prefix=_INCOMPLETE, dir=folder.parent))
    try:
        _copy_entries(template, copy)
        copy.rename(folder)
    except OSError:
        # Another process may have created the folder first.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _entries(template: Path) -> Iterator[TemplateEntry]:
    """List a template, each folder before its contents. A link within the template is listed as its target.

    Entries with a problem: broken links, links out of the template or to a parent folder, unreadable entries, and
    entries that are neither files nor folders.
    """
    top = Path(os.path.realpath(template))
    folders: list[tuple[Path, frozenset[Path]]] = [(top, frozenset({top}))]
    while folders:
        folder, above = folders.pop()
        try:
            inside = sorted(folder.iterdir())
        except OSError as e:
            yield TemplateEntry(str(folder.relative_to(top)), problem=f"cannot be read: {e.strerror}")
            continue
        for path in inside:
            target = Path(os.path.realpath(path))  # Path.resolve raises on a link loop
            entry = _entry(path, target, top, above)
            yield entry
            if entry.is_folder:
                folders.append((path, above | {target}))


def _entry(path: Path, target: Path, top: Path, above: frozenset[Path]) -> TemplateEntry:
    name, problem = str(path.relative_to(top)), None
    try:
        found = target.stat()
    except OSError as e:
        return TemplateEntry(name, problem=f"is a broken link to {target}: {e.strerror}")
    is_folder = stat.S_ISDIR(found.st_mode)
    if not target.is_relative_to(top):
        problem = f"links out of the template, to {target}"
    elif target in above:
        problem = "links to a parent folder"
    elif not is_folder and not stat.S_ISREG(found.st_mode):
        problem = "is neither a file nor a folder"
    elif not os.access(target, os.R_OK):
        problem = "is not readable by the service"
    if problem is not None:
        return TemplateEntry(name, problem=problem)
    return TemplateEntry(name, is_folder, 0 if is_folder else found.st_size)


def _copy_entries(template: Path, folder: Path) -> None:
    """Copy the entries without a problem into an existing folder. Modes are preserved, except that of the folder.

    Raises:
        OSError: an entry cannot be written.
    """
    folders: list[str] = []
    for entry in _entries(template):
        if entry.problem is not None:
            continue
        if entry.is_folder:
            (folder / entry.path).mkdir(mode=0o700)
            folders.append(entry.path)
        else:
            shutil.copy2(template / entry.path, folder / entry.path)
    for path in reversed(folders):  # last, because files cannot be added to a read-only folder
        shutil.copystat(template / path, folder / path)
