"""Logs in an SQLite file. A killed process loses nothing; a power failure may lose the last writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.records import Key, fields_of, node_of
from orchestrator_interactive.interactions.stores.base import conflict, fenced, log_of_row, refuse_broken_text
from orchestrator_interactive.storage.sqlite import Database, via

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.stores.base import Change, Log

# Maximum number of states of a write on the event loop's thread.
_MAX_AT_ONCE = 50

_TABLES = (
    # AUTOINCREMENT never reuses an id: another process may still use the id of a removed log.
    """CREATE TABLE IF NOT EXISTS logs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, agent TEXT NOT NULL,
        version INTEGER NOT NULL, end INTEGER NOT NULL, written REAL NOT NULL, change TEXT NOT NULL DEFAULT '',
        UNIQUE (conversation, agent))""",
    # Not in `logs`, so that the cost of a push does not depend on the number of branches.
    "CREATE TABLE IF NOT EXISTS trees (log INTEGER PRIMARY KEY, tree TEXT NOT NULL)",
    # With row ids: without them a state above one kilobyte takes overflow pages, twice the space, and longer to write.
    """CREATE TABLE IF NOT EXISTS nodes (
        log INTEGER NOT NULL, segment INTEGER NOT NULL, idx INTEGER NOT NULL,
        v INTEGER NOT NULL, t TEXT NOT NULL, ts REAL NOT NULL, compressed INTEGER NOT NULL, data NOT NULL,
        about TEXT NOT NULL, PRIMARY KEY (log, segment, idx))""",
    "CREATE TABLE IF NOT EXISTS agents (id TEXT PRIMARY KEY, config TEXT NOT NULL) WITHOUT ROWID",
    # Fencing tokens, in their own table: a log that does not exist may have one.
    """CREATE TABLE IF NOT EXISTS fences (
        conversation TEXT NOT NULL, agent TEXT NOT NULL, token INTEGER NOT NULL, PRIMARY KEY (conversation, agent))
        WITHOUT ROWID""",
)
_LOAD = """SELECT version, end, written, tree FROM logs LEFT JOIN trees ON log = id
    WHERE conversation = ? AND agent = ?"""
# No RETURNING: it doubles the time of an update.
# One row, also of a log that does not exist.
_FIND = """SELECT id, coalesce(version, 0), change, coalesce(token, 0) FROM (SELECT ? AS c, ? AS a)
    LEFT JOIN logs ON logs.conversation = c AND logs.agent = a
    LEFT JOIN fences ON fences.conversation = c AND fences.agent = a"""
_UPDATE = "UPDATE logs SET version = version + 1, end = ?, written = ?, change = ? WHERE id = ?"
_INSERT = "INSERT INTO logs (end, written, change, conversation, agent, version) VALUES (?, ?, ?, ?, ?, 1)"
_RAISE_FENCE = """INSERT INTO fences VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET token = excluded.token WHERE token <= excluded.token RETURNING token"""
_ADD = "REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CUT = "DELETE FROM nodes WHERE log = ? AND segment = ? AND idx >= ? AND idx < ?"
_READ = """SELECT segment, idx, v, t, ts, compressed, data, about FROM nodes
    WHERE log = (SELECT id FROM logs WHERE conversation = ? AND agent = ?) AND segment = ? AND idx >= ? AND idx < ?
    ORDER BY idx"""


class SqliteStore:
    """Logs in an SQLite file that several processes may open."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open the store in this file, which is created if it is missing."""
        return cls(await Database.open(path, "conversation-log", prepare))

    @via(Database.read_in_thread)
    def load(self, file: sqlite3.Connection, key: Key) -> Log | None:
        row = file.execute(_LOAD, (key.conversation_id, key.agent_id)).fetchone()
        return log_of_row(key, *row) if row else None

    async def commit(self, key: Key, change: Change) -> None:
        is_small = len(change.nodes) <= _MAX_AT_ONCE and not change.cuts
        write = self.database.write if is_small else self.database.write_in_thread
        await write(lambda file: _commit(file, key, change))

    @via(Database.write)
    def fence(self, file: sqlite3.Connection, key: Key, token: int) -> None:
        if file.execute(_RAISE_FENCE, (key.conversation_id, key.agent_id, token)).fetchone() is None:
            raise fenced(key)

    @via(Database.read_in_thread)
    def read(self, file: sqlite3.Connection, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        return [_node(row) for row in file.execute(_READ, (key.conversation_id, key.agent_id, segment, start, stop))]

    @via(Database.read_in_thread)
    def keys(self, file: sqlite3.Connection) -> list[Key]:
        rows = file.execute("SELECT conversation, agent FROM logs ORDER BY written DESC, conversation, agent")
        return [Key(*ids) for ids in rows if all(isinstance(each, str) and each for each in ids)]

    @via(Database.write_in_thread)
    def remove(self, file: sqlite3.Connection, key: Key, version: int, fence: int | None = None) -> None:
        log, now, _, highest = file.execute(_FIND, (key.conversation_id, key.agent_id)).fetchone()
        if fence is not None and highest > fence:
            raise fenced(key)
        if now != version:
            raise conflict(key)
        file.execute("DELETE FROM logs WHERE id = ?", (log,))
        file.execute("DELETE FROM trees WHERE log = ?", (log,))
        file.execute("DELETE FROM nodes WHERE log = ?", (log,))

    async def save_agent(self, agent_id: str, config: str) -> None:
        refuse_broken_text(agent_id, config)
        await self.database.write(lambda file: file.execute("REPLACE INTO agents VALUES (?, ?)", (agent_id, config)))

    @via(Database.read_in_thread)
    def agents(self, file: sqlite3.Connection) -> dict[str, str]:
        return dict(file.execute("SELECT id, config FROM agents ORDER BY id").fetchall())

    @via(Database.write)
    def forget_agent(self, file: sqlite3.Connection, agent_id: str) -> None:
        file.execute("DELETE FROM agents WHERE id = ?", (agent_id,))

    async def delete_expired(self) -> None:
        """Do nothing: only fences expire, and the next start of a service removes those."""

    async def aclose(self) -> None:
        """Close the file after pending writes have finished."""
        await self.database.aclose()


def prepare(file: sqlite3.Connection) -> None:
    """Create missing tables."""
    for statement in _TABLES:
        file.execute(statement)


def _commit(file: sqlite3.Connection, key: Key, change: Change) -> None:
    place = (key.conversation_id, key.agent_id)
    log, version, last, fence = file.execute(_FIND, place).fetchone()
    is_fenced = change.fence is not None and fence > change.fence
    if is_fenced or version != change.version:
        if last == change.id:
            return  # a retry of the last change
        raise fenced(key) if is_fenced else conflict(key)
    after = (change.end, change.written, change.id)
    if log is None:
        log = file.execute(_INSERT, (*after, *place)).lastrowid
    else:
        file.execute(_UPDATE, (*after, log))
    if change.tree is not None:
        file.execute("REPLACE INTO trees VALUES (?, ?)", (log, trees.to_json(change.tree)))
    for node in change.nodes:
        envelope = node.envelope
        head = (log, node.segment, node.index, envelope["v"], envelope["t"], envelope["ts"], envelope["compressed"])
        file.execute(_ADD, (*head, envelope["data"], fields_of(node)))
    for cut in change.cuts:
        file.execute(_CUT, (log, cut.segment, cut.start, cut.stop))


def _node(row: tuple[Any, ...]) -> Node:
    segment, index, v, t, ts, compressed, data, fields = row
    return node_of(segment, index, {"v": v, "t": t, "ts": ts, "data": data, "compressed": bool(compressed)}, fields)
