"""The tables of the run store in an SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.sqlite import writing
from service.store.serialization import KEPT_S

if TYPE_CHECKING:
    import sqlite3

VERSION = 1
# The workspace in a conversation's id, as in `workspace_of`. SQLite uses the index only for exactly this expression.
WORKSPACE = "substr(conversation, 1, instr(conversation || ':', ':') - 1)"

_SCHEMA = (
    # `owner` is NULL after a release; `back` is the fencing token of the last released lease. `todo`: there is pending
    # work; `due`: when other processes may claim it. Times are in seconds since the epoch.
    """CREATE TABLE IF NOT EXISTS run_conversations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL UNIQUE, agent TEXT,
        seq INTEGER NOT NULL DEFAULT 0, held_seq INTEGER NOT NULL DEFAULT 0, run TEXT,
        token INTEGER NOT NULL DEFAULT 0, owner TEXT, until REAL NOT NULL DEFAULT 0, back INTEGER,
        todo INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL DEFAULT 0, changed REAL NOT NULL)""",
    # An entry is pending while `end` is NULL.
    """CREATE TABLE IF NOT EXISTS run_entries (
        conversation INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
        data TEXT, "end" TEXT, PRIMARY KEY (conversation, seq), UNIQUE (conversation, id))""",
    """CREATE TABLE IF NOT EXISTS run_posts (
        conversation INTEGER NOT NULL, part TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (conversation, part))
        WITHOUT ROWID""",
    f"CREATE INDEX IF NOT EXISTS run_due_in ON run_conversations ({WORKSPACE}, due) WHERE todo",
    'CREATE INDEX IF NOT EXISTS run_waiting ON run_entries (conversation, seq) WHERE "end" IS NULL',
    # Number of entries whose ids have expired, by `end`.
    """CREATE TABLE IF NOT EXISTS run_forgotten (
        conversation INTEGER NOT NULL, "end" TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (conversation, "end"))
        WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS run_version (version INTEGER NOT NULL)",
)
_COUNT = """INSERT INTO run_forgotten SELECT conversation, "end", count(*) FROM run_entries
    WHERE "end" IS NOT NULL AND {which} GROUP BY conversation, "end"
    ON CONFLICT DO UPDATE SET count = count + excluded.count"""
_FORGET = 'DELETE FROM run_entries WHERE "end" IS NOT NULL AND {which}'
_UNCHANGED = "conversation IN (SELECT id FROM run_conversations WHERE changed < ?)"
_DELETE_UNUSED_FENCES = """DELETE FROM fences WHERE NOT EXISTS (
    SELECT 1 FROM logs WHERE logs.conversation = fences.conversation AND logs.agent = fences.agent)"""


def version(file: sqlite3.Connection) -> int:
    """Return the version of the run tables; 0 if there is none."""
    found = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'run_version'").fetchone()
    return max((number for (number,) in file.execute("SELECT version FROM run_version")), default=0) if found else 0


def prepare(file: sqlite3.Connection) -> None:
    """Create missing tables.

    Raises:
        StoreError: the file has a newer version.
    """
    found = version(file)
    if found > VERSION:
        raise StoreError(
            f"The run tables of the file have version {found}; this installation supports up to version {VERSION}. "
            "Update amplifier-slack, or use another file."
        )
    for statement in _SCHEMA:
        file.execute(statement)
    if not found:
        file.execute("INSERT INTO run_version VALUES (?)", (VERSION,))


def end_leases(file: sqlite3.Connection, now: float) -> None:
    """End all leases and unused fences of earlier processes, and delete expired ids. Requires the file's lock."""
    with writing(file):
        file.execute("UPDATE run_conversations SET until = 0, due = min(due, ?)", (now,))
        file.execute(_DELETE_UNUSED_FENCES)
    expire(file, now)


def expire(file: sqlite3.Connection, now: float) -> None:
    """Delete the ids of closed entries in conversations unchanged for a week; keep their counts."""
    with writing(file):
        forget_ids(file, _UNCHANGED, now - KEPT_S)


def forget_ids(file: sqlite3.Connection, which: str, *values: float) -> None:
    file.execute(_COUNT.format(which=which), values)
    file.execute(_FORGET.format(which=which), values)
