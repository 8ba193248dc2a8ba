"""The file of an SQLite store: opened only where it is ours and can be written."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# For how long a write waits for one of another process.
BUSY_TIMEOUT_S = 5.0
# "aslg": whoever opens the file can tell that it is ours.
APPLICATION_ID = 0x61736C67
VERSION = 2

# Whoever may write to a log: apart from it, since a log that is not there has a fence, too.
_FENCES = """CREATE TABLE fences (
    conversation TEXT NOT NULL, agent TEXT NOT NULL, token INTEGER NOT NULL, PRIMARY KEY (conversation, agent))
    WITHOUT ROWID"""
_SCHEMA = (
    # A number is never given again: it may still be known where the log has gone.
    """CREATE TABLE logs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, agent TEXT NOT NULL,
        version INTEGER NOT NULL, end INTEGER NOT NULL, written REAL NOT NULL, change TEXT NOT NULL DEFAULT '',
        UNIQUE (conversation, agent))""",
    # Apart from the log, so that a push costs the same whether there is one branch or a thousand.
    "CREATE TABLE trees (log INTEGER PRIMARY KEY, tree TEXT NOT NULL)",
    # A table with row ids, for in one without a state of more than a kilobyte takes pages of its own: half as large,
    # and a third faster to write.
    """CREATE TABLE nodes (
        log INTEGER NOT NULL, segment INTEGER NOT NULL, idx INTEGER NOT NULL,
        v INTEGER NOT NULL, t TEXT NOT NULL, ts REAL NOT NULL, compressed INTEGER NOT NULL, data NOT NULL,
        about TEXT NOT NULL, PRIMARY KEY (log, segment, idx))""",
    "CREATE TABLE agents (id TEXT PRIMARY KEY, config TEXT NOT NULL) WITHOUT ROWID",
    _FENCES,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
# From the version to the next one.
_MIGRATIONS = {
    1: ("ALTER TABLE logs ADD COLUMN change TEXT NOT NULL DEFAULT ''", _FENCES, "PRAGMA user_version = 2"),
}

_REMEDIES = {
    "SQLITE_BUSY": f"another process has held it locked for {BUSY_TIMEOUT_S:.0f} seconds. Try again, or end it",
    "SQLITE_READONLY": "it cannot be written. Give this user the right to write the file and its folder",
    "SQLITE_PERM": "it may not be used. Give this user the right to read and write the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened. See that it is a file in a folder, and that this user may write both",
    "SQLITE_NOTADB": "it is no SQLite file. Name another file",
    "SQLITE_CORRUPT": "it is damaged. Restore it from a backup, or save what is left with `sqlite3 FILE .recover`",
    "SQLITE_FULL": "there is no room left on its disk. Make room",
    "SQLITE_IOERR": "its disk cannot be read or written. Look whether it is full or broken",
}


def opened(path: Path, prepare: Callable[[sqlite3.Connection], None] | None = None) -> sqlite3.Connection:
    """A connection for the thread that asks for it; the file is made where there is none, or brought up to date.

    `prepare` is called within the transaction that does so.

    Raises:
        StoreError: it is not ours, or of a newer version; nothing was changed.
        sqlite3.Error, OSError: it cannot be used; `problem` says it in a sentence.
    """
    _make(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.text_factory = _text
        _version(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        version = _version(connection, path)  # somebody else may have been faster
        for statement in _SCHEMA if not version else _MIGRATIONS.get(version, ()):
            connection.execute(statement)
        if prepare is not None:
            prepare(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def writer(path: Path) -> sqlite3.Connection:
    """A second connection, for a thread that nothing may hold up: it waits for no lock, and never for the disk."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else is writing."""
    return _name(error).startswith("SQLITE_BUSY")


def passes(error: sqlite3.Error) -> bool:
    """Whether the same step may well succeed later: somebody else is writing, or the disk is full or away."""
    return _name(error).startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR"))


def _name(error: sqlite3.Error) -> str:
    # Errors of Python's own module have none.
    return str(getattr(error, "sqlite_errorname", ""))


def checkpoint(connection: sqlite3.Connection) -> None:
    """Bring what was written into the file itself, so that the log beside it begins anew; if not now, another time.

    Whoever writes meanwhile has to wait: a log that is written to all the time would grow for ever.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def identity(path: Path) -> tuple[int, int] | None:
    """Which file this is; `None`: there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - half as long as Path.stat, before every write
    except OSError:
        return None
    return found.st_dev, found.st_ino


def problem(path: Path, error: Exception) -> str:
    """Why the file cannot be used, and what to do."""
    other = "SQLITE_PERM" if isinstance(error, PermissionError) else "SQLITE_CANTOPEN"
    name: str = other if isinstance(error, OSError) else getattr(error, "sqlite_errorname", "")
    if not isinstance(error, sqlite3.Error | OSError):
        name = "SQLITE_CORRUPT"
    remedy = next((text for code, text in _REMEDIES.items() if name.startswith(code)), None)
    return f"The conversation log {path} cannot be used: {remedy or error}."


def _make(path: Path) -> None:
    """Make the file where there is none.

    Raises:
        OSError: this user may not read and write it. SQLite would leave files of this user's beside it before it
            found out, and its owner could not write these.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # what people say to each other is for this user alone
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file; 0: nothing is in it yet.

    Raises:
        StoreError: something is in it that is not for us.
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
            f"The conversation log {path} has version {version}, and this installation knows {VERSION}: "
            "update it, or name another file."
        )
    return version


def _text(raw: bytes) -> str | None:
    """A text of the file; `None`: it is damaged."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
