"""The tables of runs in an SQLite file, and how those of an earlier version come to be today's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.sqlite import writing
from service.store.serialization import KEPT_S

if TYPE_CHECKING:
    import sqlite3

VERSION = 2
# The workspace in a conversation's id, as `workspace_of` reads it; SQLite uses the index only for this very expression.
WORKSPACE = "substr(conversation, 1, instr(conversation || ':', ':') - 1)"

_SCHEMA = (
    # `owner` is blank once the lease was given back; `back` is the token that was given back last. `todo`: there is
    # something to do; `due`: when others may be told so. Times are in seconds since the epoch.
    """CREATE TABLE IF NOT EXISTS run_conversations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL UNIQUE, agent TEXT,
        seq INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0, run TEXT,
        token INTEGER NOT NULL DEFAULT 0, owner TEXT, until REAL NOT NULL DEFAULT 0, back INTEGER,
        todo INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL DEFAULT 0, changed REAL NOT NULL)""",
    # Waiting for as long as it has no end.
    """CREATE TABLE IF NOT EXISTS run_entries (
        conversation INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
        data TEXT, "end" TEXT, PRIMARY KEY (conversation, seq), UNIQUE (conversation, id))""",
    """CREATE TABLE IF NOT EXISTS run_posts (
        conversation INTEGER NOT NULL, part TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (conversation, part))
        WITHOUT ROWID""",
    "DROP INDEX IF EXISTS run_due",  # it was of all workspaces
    f"CREATE INDEX IF NOT EXISTS run_due_in ON run_conversations ({WORKSPACE}, due) WHERE todo",
    'CREATE INDEX IF NOT EXISTS run_waiting ON run_entries (conversation, seq) WHERE "end" IS NULL',
)
# From the version to the next one; 0 is that of a file which has none.
_MIGRATIONS = {
    0: (
        # Of the entries whose ids are not known any more, how many there were, by how they left; `?`: nobody counted.
        """CREATE TABLE run_forgotten (
            conversation INTEGER NOT NULL, "end" TEXT NOT NULL, count INTEGER NOT NULL,
            PRIMARY KEY (conversation, "end")) WITHOUT ROWID""",
        """INSERT INTO run_forgotten SELECT id, '?', forgotten FROM (
            SELECT id, seq - (SELECT count(*) FROM run_entries WHERE conversation = c.id) AS forgotten
            FROM run_conversations AS c) WHERE forgotten > 0""",
        "CREATE TABLE run_version (version INTEGER NOT NULL)",
        "INSERT INTO run_version VALUES (2)",
    )
}
_COUNT = """INSERT INTO run_forgotten SELECT conversation, "end", count(*) FROM run_entries
    WHERE "end" IS NOT NULL AND {which} GROUP BY conversation, "end"
    ON CONFLICT DO UPDATE SET count = count + excluded.count"""
_FORGET = 'DELETE FROM run_entries WHERE "end" IS NOT NULL AND {which}'
_RESTED = "conversation IN (SELECT id FROM run_conversations WHERE changed < ?)"
_LEFT_ALONE = """DELETE FROM fences WHERE NOT EXISTS (
    SELECT 1 FROM logs WHERE logs.conversation = fences.conversation AND logs.agent = fences.agent)"""


def version(file: sqlite3.Connection) -> int:
    """The version of what the file has of runs; 0: it has none."""
    found = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'run_version'").fetchone()
    return max((number for (number,) in file.execute("SELECT version FROM run_version")), default=0) if found else 0


def prepare(file: sqlite3.Connection) -> None:
    """Make what is missing.

    Raises:
        StoreError: the file is of a newer version.
    """
    found = version(file)
    if found > VERSION:
        raise StoreError(
            f"What the file keeps of runs has version {found}, and this installation knows {VERSION}: update it, or "
            "name another file."
        )
    for statement in (*_SCHEMA, *_MIGRATIONS.get(found, ())):
        file.execute(statement)


def let_go(file: sqlite3.Connection, now: float) -> None:
    """End all leases and fences, for nobody is left who could hold one; forget the ids that nobody sends any more."""
    with writing(file):
        file.execute("UPDATE run_conversations SET until = 0, due = min(due, ?)", (now,))
        file.execute(_LEFT_ALONE)
    tidy(file, now)


def tidy(file: sqlite3.Connection, now: float) -> None:
    """Forget the ids of entries that have left where nothing has happened for a week; how many there were is kept."""
    with writing(file):
        forget_ids(file, _RESTED, now - KEPT_S)


def forget_ids(file: sqlite3.Connection, which: str, *values: float) -> None:
    file.execute(_COUNT.format(which=which), values)
    file.execute(_FORGET.format(which=which), values)
