"""Back up and restore an SQLite store: one file with inboxes, runs, outboxes and conversation logs."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.sqlite import sqlite_path
from service.doctor.delivery_audit import check
from service.store import inspect_run_store, open_log_store, refuse_unprepared
from service.store.sqlite import ASIDE, exclusive, mark_gap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.doctor.delivery_audit import DeliveryAudit

_NAME_A_BACKUP = "Name a file that `amplifier-slack backup` wrote."
_SIDE_FILES = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored store: the last change in it (seconds since the epoch), its audit, and the replaced file, if any."""

    since_s: float
    audit: DeliveryAudit
    aside: Path | None


async def back_up(url: str, target: Path) -> DeliveryAudit:
    """Copy the store to a new file, which appears once it is complete and verified. Services may use the store.

    Returns the audit of the copy; its violations are those of the store.

    Raises:
        StoreError: the store is in Redis, or it cannot be copied.
    """
    path = _file(url)
    refuse_unprepared(url)
    with _new_file(target) as copy:
        await asyncio.to_thread(_copy, path, copy)
        return await _verified(copy)


async def restore(url: str, source: Path) -> Restored:
    """Replace the store by a backup; the present file is kept next to it.

    Raises:
        StoreError: the store is in Redis or in use, or the backup cannot be used; nothing was changed.
    """
    path = _file(url)
    with exclusive(path), _new_file(path, aside := _free_name(path)) as copy:
        await asyncio.to_thread(_copy, source, copy)
        try:
            refuse_unprepared(f"sqlite:{copy}")
        except StoreError as e:
            raise StoreError(f"{source} is not a store of a service. {_NAME_A_BACKUP}") from e
        try:
            audit = await _verified(copy)
        except StoreError as e:
            raise StoreError(str(e).replace(str(copy), str(source))) from e
        with closing(sqlite3.connect(copy)) as file, file:
            since_s = mark_gap(file, time.time())
    return Restored(since_s, audit, aside)


def _file(url: str) -> Path:
    if not url.startswith("sqlite:"):
        raise StoreError(
            "The store is in Redis, which has its own backups: `redis-cli --rdb FILE` copies it while services run; to "
            "restore it, stop services and Redis, and put the file in the place of its `dbfilename`."
        )
    return sqlite_path(url).resolve()


@contextmanager
def _new_file(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """Yield a temporary file that becomes `path` when the body has succeeded; it is then on the disk.

    An existing file is kept as `aside`.

    Raises:
        StoreError: the file or its disk cannot be used, or another process has it open.
    """
    if path.exists() and aside is None:
        raise StoreError(f"{path} exists already. Name a new file.")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
            copy = Path(folder) / path.name
            copy.touch(0o600)
            yield copy
            if path.exists():  # it is replaced by a file of the same owner
                was = path.stat()
                copy.chmod(was.st_mode & 0o777)
                os.chown(copy, was.st_uid, was.st_gid)
            with closing(sqlite3.connect(copy)) as file:
                file.execute("PRAGMA journal_mode = DELETE")  # everything is in one file
            _sync(copy)
            if aside is not None:
                _set_aside(path, aside)
            copy.replace(path)
        _sync(path.parent)
    except (OSError, sqlite3.Error) as e:
        reason = e.strerror if isinstance(e, OSError) else e
        raise StoreError(f"{path} cannot be written: {reason}. Check its folder and the space there.") from e


def _copy(source: Path, target: Path) -> None:
    """Copy a file at one moment, also while it is written to, and check the copy.

    Raises:
        StoreError: it is no SQLite file, or is damaged.
    """
    try:
        with (
            closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as file,
            closing(sqlite3.connect(target)) as copy,
        ):
            file.backup(copy)
            found = [str(problem) for (problem,) in copy.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as e:
        raise StoreError(f"{source} cannot be copied: {e}. {_NAME_A_BACKUP}") from e
    if found != ["ok"]:
        raise StoreError(f"{source} is damaged: {'; '.join(found[:3])}. Nothing was written; use another backup.")


async def _verified(copy: Path) -> DeliveryAudit:
    """Open both stores in the copy, which checks their versions, and audit them."""
    url = f"sqlite:{copy}"
    async with aclosing(await open_log_store(url)) as logs, aclosing(await inspect_run_store(url)) as runs:
        return await check(runs, logs)


def _free_name(path: Path) -> Path | None:
    """Return another name for the file; `None` if it does not exist."""
    return path.with_name(f"{path.name}{ASIDE}{time.strftime('%Y%m%d-%H%M%S')}") if path.exists() else None


def _set_aside(path: Path, aside: Path) -> None:
    """Give the file a second name, which it keeps when a backup takes its place.

    Raises:
        StoreError: another process has it open.
    """
    try:
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA journal_mode = DELETE")  # puts everything into the one file
    except sqlite3.Error as e:  # otherwise the file is damaged
        if getattr(e, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise StoreError(
                f"Another process has {path} open, such as `sessions serve` or `top`. Stop it, and restore again."
            ) from e
    aside.hardlink_to(path)
    for suffix in _SIDE_FILES:  # of a damaged file only
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
