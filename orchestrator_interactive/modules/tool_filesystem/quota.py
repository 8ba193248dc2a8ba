"""Limits on the size of a workspace folder and on the free space of its disk."""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Usage = tuple[int, int]  # total size in bytes, and number of files and folders

MB = 1_000_000
# Another program may have changed the folder since it was measured.
_MEASURE_EVERY_S = 10.0
# Files are written under this name plus 16 hex digits, and then renamed. A killed process leaves the draft behind.
DRAFT = ".draft-"
_DRAFT = re.compile(rf"{re.escape(DRAFT)}[0-9a-f]{{16}}")
_LEFT_AFTER_S = 3600.0


class NoRoom(OSError):  # noqa: N818 - a fact about the disk
    """Refusal to write more; the message states the usage, the limit and the remedy."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one workspace folder; None means no limit.

    Args:
        quota_bytes: total size of its files.
        quota_files: number of its files and folders.
        reserve_bytes: free space that a write leaves on the disk.
    """

    quota_bytes: int | None = None
    quota_files: int | None = None
    reserve_bytes: int = 0


@dataclass
class _Folder:
    """The state of one folder, shared by all of its workspaces in this process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    usage: Usage | None = None
    measured_s: float = 0.0


_FOLDERS: WeakValueDictionary[Path, _Folder] = WeakValueDictionary()


def free_bytes(path: Path) -> int:
    """Return the free space of the disk that holds a path."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def usage_of(top: Path) -> Usage:
    """Measure the content of a folder without following links; remove the drafts of interrupted writes."""
    size_bytes, files, folders = 0, 0, [os.fspath(top)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:  # removed since it was listed, or not readable
            for entry in entries:
                with suppress(OSError):  # not a file, or no permission to remove it
                    if _DRAFT.fullmatch(entry.name) and is_left_behind(entry.path):
                        Path(entry.path).unlink()
                        continue
                files += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    size_bytes += entry.stat(follow_symlinks=False).st_size
    return size_bytes, files


def is_left_behind(path: str | Path) -> bool:
    """Return whether a temporary file or folder is too old to be still in use."""
    return time.time() - os.lstat(path).st_mtime > _LEFT_AFTER_S


class Quota:
    """The limits of one folder. `room` holds a lock, so that concurrent writes do not use the same free space."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self._root = root
        self._limits = limits
        self._folder = _FOLDERS.setdefault(root, _Folder())

    @contextmanager
    def room(self, parts: Sequence[str], added_bytes: int, *, append: bool) -> Iterator[None]:
        """Hold the folder's lock while a file is written or extended by `added_bytes`.

        Raises:
            NoRoom: the file would exceed a limit; nothing was written.
        """
        with self._folder.lock:
            size, missing = self._present(parts)
            growth = added_bytes if append else added_bytes - size
            if growth > 0 or missing:
                self._refuse_excess(growth, missing, draft_bytes=size + growth)
            usage, self._folder.usage = self._folder.usage, None  # measured again if the block fails
            yield
            if usage is not None:
                self._folder.usage = (usage[0] + growth, usage[1] + missing)

    def _present(self, parts: Sequence[str]) -> tuple[int, int]:
        """Return the size of a file, and how many parts of its path do not exist."""
        for number in range(len(parts), 0, -1):
            try:
                found = os.lstat(self._root.joinpath(*parts[:number]))
            except (FileNotFoundError, NotADirectoryError):
                continue
            return (found.st_size if number == len(parts) else 0), len(parts) - number
        return 0, len(parts)

    def _refuse_excess(self, growth: int, missing: int, draft_bytes: int) -> None:
        free = free_bytes(self._root)
        if free - draft_bytes < self._limits.reserve_bytes:
            raise NoRoom(
                f"Nothing was written: this needs {_mb(draft_bytes)}, the disk has {_mb(free)}, and the service keeps "
                f"{_mb(self._limits.reserve_bytes)} free. Tell the people here that its operator must free disk space."
            )
        if self._limits.quota_bytes is None and self._limits.quota_files is None:
            return
        problem = self._problem(self._measured(_MEASURE_EVERY_S), growth, missing)
        if problem:  # measured again: another program may have removed files
            problem = self._problem(self._measured(0), growth, missing)
        if problem:
            raise NoRoom(f"Nothing was written: {problem}")

    def _problem(self, usage: Usage, growth: int, missing: int) -> str | None:
        (size_bytes, files), max_bytes, max_files = usage, self._limits.quota_bytes, self._limits.quota_files
        if max_files is not None and missing and files + missing > max_files:
            return (
                f"the workspace may hold {max_files:,} files and folders, and it is full. Add the text to a file that "
                "exists (append=true), or replace one that is not needed."
            )
        if max_bytes is not None and growth > 0 and size_bytes + growth > max_bytes:
            return (
                f"the workspace may hold {_mb(max_bytes)}, it holds {_mb(size_bytes)}, and this needs "
                f"{_mb(growth)} more. Write less, or first free space: replace files that are not needed by shorter or "
                "empty ones."
            )
        return None

    def _measured(self, max_age_s: float) -> Usage:
        folder, now_s = self._folder, time.monotonic()
        if folder.usage is None or now_s - folder.measured_s >= max_age_s:
            folder.usage, folder.measured_s = usage_of(self._root), now_s
        return folder.usage


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / MB:,.1f} MB"
