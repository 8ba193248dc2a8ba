"""Create, check and migrate the file of an SQLite store."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# How long a write waits for another process's lock.
BUSY_TIMEOUT_S = 5.0
# "aslg": identifies the file as a conversation log.
APPLICATION_ID = 0x61736C67
VERSION = 1

# Fencing tokens, in their own table: a log that does not exist may have one.
_FENCES = """CREATE TABLE fences (
    conversation TEXT NOT NULL, agent TEXT NOT NULL, token INTEGER NOT NULL, PRIMARY KEY (conversation, agent))
    WITHOUT ROWID"""
_SCHEMA = (
    # AUTOINCREMENT never reuses an id: another process may still use the id of a removed log.
    """CREATE TABLE logs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, agent TEXT NOT NULL,
        version INTEGER NOT NULL, end INTEGER NOT NULL, written REAL NOT NULL, change TEXT NOT NULL DEFAULT '',
        UNIQUE (conversation, agent))""",
    # Not in `logs`, so that the cost of a push does not depend on the number of branches.
    "CREATE TABLE trees (log INTEGER PRIMARY KEY, tree TEXT NOT NULL)",
    # With row ids: without them a state above one kilobyte takes overflow pages, twice the space, and longer to write.
    """CREATE TABLE nodes (
        log INTEGER NOT NULL, segment INTEGER NOT NULL, idx INTEGER NOT NULL,
        v INTEGER NOT NULL, t TEXT NOT NULL, ts REAL NOT NULL, compressed INTEGER NOT NULL, data NOT NULL,
        about TEXT NOT NULL, PRIMARY KEY (log, segment, idx))""",
    "CREATE TABLE agents (id TEXT PRIMARY KEY, config TEXT NOT NULL) WITHOUT ROWID",
    _FENCES,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)

_REMEDIES = {
    "SQLITE_BUSY": f"another process has held it locked for {BUSY_TIMEOUT_S:.0f} seconds. Try again, or end it",
    "SQLITE_READONLY": "it is read-only. Grant this user write access to the file and its folder",
    "SQLITE_PERM": "access is denied. Grant this user read and write access to the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that it is a file, and that this user may write it and its folder",
    "SQLITE_NOTADB": "it is not an SQLite file. Name another file",
    "SQLITE_CORRUPT": "it is damaged. Restore it from a backup, or save what is left with `sqlite3 FILE .recover`",
    "SQLITE_FULL": "its disk is full. Free space on it",
    "SQLITE_IOERR": "its disk cannot be read or written. Check whether it is full or broken",
}


def open_database(path: Path, prepare: Callable[[sqlite3.Connection], None] | None = None) -> sqlite3.Connection:
    """Open a connection for the calling thread; the file is created if needed.

    `prepare` is called in the same transaction.

    Raises:
        StoreError: the file belongs to another application or a newer version; nothing was changed.
        sqlite3.Error, OSError: it cannot be used; `problem` describes the error.
    """
    _make(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    with ExitStack() as undo:
        undo.callback(connection.close)
        connection.text_factory = _text
        _version(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        version = _version(connection, path)  # another process may have created it
        for statement in () if version else _SCHEMA:
            connection.execute(statement)
        if prepare is not None:
            prepare(connection)
        connection.execute("COMMIT")
        undo.pop_all()
    return connection


def open_writer(path: Path) -> sqlite3.Connection:
    """Open a second connection that never blocks: it waits for no lock and runs no checkpoint."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection holds the lock."""
    return _name(error).startswith("SQLITE_BUSY")


def is_transient(error: sqlite3.Error) -> bool:
    """Return whether a retry may succeed later: the file is locked, or its disk is full or unavailable."""
    return _name(error).startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR"))


def _name(error: sqlite3.Error) -> str:
    # Errors that Python's own module raises have no name.
    return str(getattr(error, "sqlite_errorname", ""))


def checkpoint(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file, so that its size stays bounded; do nothing if the file is in use.

    Writers wait during a checkpoint, because otherwise constant writes would prevent it.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file; `None` if it does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116 - takes half as long as Path.stat, and runs before every write
    except OSError:
        return None
    return found.st_dev, found.st_ino


def problem(path: Path, error: Exception) -> str:
    """Describe why the file cannot be used, and the remedy."""
    other = "SQLITE_PERM" if isinstance(error, PermissionError) else "SQLITE_CANTOPEN"
    name: str = other if isinstance(error, OSError) else getattr(error, "sqlite_errorname", "")
    if not isinstance(error, sqlite3.Error | OSError):
        name = "SQLITE_CORRUPT"
    remedy = next((text for code, text in _REMEDIES.items() if name.startswith(code)), None)
    return f"The conversation log {path} cannot be used: {remedy or error}."


def _make(path: Path) -> None:
    """Create the file if it is missing.

    Raises:
        OSError: this user may not read and write it. Without this check SQLite would create side files of this user,
            which the file's owner could not write.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # conversations are private to this user
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of the file; 0 if it is empty.

    Raises:
        StoreError: the file belongs to another application or a newer version.
    """
    ((application,),) = connection.execute("PRAGMA application_id")
    version: int
    ((version,),) = connection.execute("PRAGMA user_version")
    if application == 0 and version == 0:
        ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
        if not tables:
            return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{path} belongs to another application: name another file for the conversation log.")
    if version > VERSION:
        raise StoreError(
            f"The conversation log {path} has version {version}; this installation knows version {VERSION}: "
            "update it, or name another file."
        )
    return version


def _text(raw: bytes) -> str | None:
    """Decode a text of the file; `None` if it is damaged."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
