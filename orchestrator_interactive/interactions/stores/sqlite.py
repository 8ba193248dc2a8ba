"""Logs in an SQLite file. A killed process loses nothing; a power failure may lose the last writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.records import DAMAGED, Key, about, damaged
from orchestrator_interactive.interactions.stores import stored
from orchestrator_interactive.interactions.stores.base import (
    conflict,
    fenced,
    is_within,
    refuse_broken_text,
    refuse_orphan,
)
from orchestrator_interactive.storage.sqlite import Database, writing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path
    from typing import Any

    from orchestrator_interactive.interactions.errors import WriteConflict
    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.stores.base import Change, Log

_as_json = json.JSONEncoder(separators=(",", ":")).encode

# States per read.
_PAGE = 500
# Maximum number of states of a write on the event loop's thread.
_MAX_AT_ONCE = 50

_LOAD = """SELECT version, end, written, tree FROM logs LEFT JOIN trees ON log = id
    WHERE conversation = ? AND agent = ?"""
_UPDATE = """UPDATE logs SET version = version + 1, end = ?, written = ?, change = ?
    WHERE conversation = ? AND agent = ? AND version = ? RETURNING id"""
_INSERT = """INSERT OR IGNORE INTO logs (conversation, agent, version, end, written, change) VALUES (?, ?, 1, ?, ?, ?)
    RETURNING id"""
_CHANGE = "SELECT change FROM logs WHERE conversation = ? AND agent = ?"
_FENCE = "SELECT token FROM fences WHERE conversation = ? AND agent = ?"
_RAISE_FENCE = """INSERT INTO fences VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET token = excluded.token WHERE token <= excluded.token RETURNING token"""
_SAVE_TREE = "REPLACE INTO trees VALUES (?, ?)"
_ADD = "REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CUT = "DELETE FROM nodes WHERE log = ? AND segment = ? AND idx >= ? AND idx < ?"
_READ = """SELECT idx, v, t, ts, compressed, data, about FROM nodes
    WHERE log = (SELECT id FROM logs WHERE conversation = ? AND agent = ?) AND segment = ? AND idx >= ? AND idx < ?
    ORDER BY idx"""
_FIND = "SELECT id, version FROM logs WHERE conversation = ? AND agent = ?"
_KEYS = "SELECT id, conversation, agent FROM logs ORDER BY written DESC, conversation, agent"
_LOGS = "SELECT id, conversation, agent FROM logs ORDER BY id"
# Damaged rows have the time 0, as in `records.damaged`.
_SCAN = """SELECT segment, idx, v, t, ts, compressed, data, about FROM nodes
    WHERE log = ? AND (segment, idx) > (?, ?)
    AND coalesce(ts + 0.0, 0.0) >= ? AND coalesce(ts + 0.0, 0.0) < ? {kinds} ORDER BY segment, idx LIMIT {page}"""


class SqliteStore:
    """Logs in an SQLite file that several processes may open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run = database.run

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open the store in this file, which is created if it is missing.

        Raises:
            StoreError: it cannot be used; nothing was changed.
        """
        return cls(await Database.open(path, "conversation-log"))

    async def load(self, key: Key) -> Log | None:
        row = await self._run(lambda file: file.execute(_LOAD, (key.conversation_id, key.agent_id)).fetchone())
        return stored.log(key, *row) if row else None

    async def commit(self, key: Key, change: Change) -> None:
        refuse_orphan(change)
        is_small = len(change.nodes) <= _MAX_AT_ONCE and not change.cuts
        refused = await (self._database.write if is_small else self._run)(_commit, key, change)
        if refused is not None:
            raise refused

    async def fence(self, key: Key, token: int) -> None:
        if not await self._database.write(_raise_fence, key, token):
            raise fenced(key)

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        place = (key.conversation_id, key.agent_id, segment, start, stop)
        return await self._run(lambda file: [_node((segment, *row)) for row in file.execute(_READ, place)])

    async def keys(self) -> list[Key]:
        rows = await self._run(lambda file: file.execute(_KEYS).fetchall())
        return [key for _, key in _named(rows)]

    async def scan(self, since: float, until: float, kinds: Sequence[str]) -> AsyncIterator[tuple[Key, Node]]:
        for log, key in _named(await self._run(lambda file: file.execute(_LOGS).fetchall())):
            at = (-1, -1)
            while rows := await self._run(_page, log, at, (since, until), kinds):
                at = rows[-1][:2]
                for node in map(_node, rows):
                    if is_within(node, since, until, kinds):
                        yield key, node

    async def remove(self, key: Key, version: int) -> None:
        if not await self._run(_remove, key, version):
            raise conflict(key)

    async def save_agent(self, agent_id: str, config: str) -> None:
        refuse_broken_text(agent_id, config)
        await self._run(lambda file: file.execute("REPLACE INTO agents VALUES (?, ?)", (agent_id, config)))

    async def agents(self) -> dict[str, str]:
        return dict(await self._run(lambda file: file.execute("SELECT id, config FROM agents ORDER BY id").fetchall()))

    async def forget_agent(self, agent_id: str) -> None:
        await self._run(lambda file: file.execute("DELETE FROM agents WHERE id = ?", (agent_id,)))

    async def delete_expired(self) -> None:
        """Do nothing: only fences expire, and the next start of a service removes those."""

    async def aclose(self) -> None:
        """Close the file after pending writes have finished."""
        await self._database.aclose()


def _commit(file: sqlite3.Connection, key: Key, change: Change) -> WriteConflict | None:
    """Write the change in one transaction; return the error if it is refused."""
    tree = None if change.tree is None else _as_json(trees.to_dict(change.tree))
    with writing(file):
        if change.fence is not None and _fence(file, key) > change.fence:
            return None if _is_last(file, key, change) else fenced(key)
        log = _update_log(file, key, change)
        if log is None:
            return None if _is_last(file, key, change) else conflict(key)
        if tree is not None:
            file.execute(_SAVE_TREE, (log, tree))
        for node in change.nodes:
            file.execute(_ADD, _row(log, node))
        for cut in change.cuts:
            file.execute(_CUT, (log, cut.segment, cut.start, cut.stop))
    return None


def _update_log(file: sqlite3.Connection, key: Key, change: Change) -> int | None:
    """Increase the log's version and return its row id; `None` if the version is not the expected one."""
    place = (key.conversation_id, key.agent_id)
    if change.version:
        row = file.execute(_UPDATE, (change.end, change.written, change.id, *place, change.version)).fetchone()
    else:
        row = file.execute(_INSERT, (*place, change.end, change.written, change.id)).fetchone()
    return row[0] if row else None


def _is_last(file: sqlite3.Connection, key: Key, change: Change) -> bool:
    """Return whether this change is already the last one written, so that this call is a retry."""
    row = file.execute(_CHANGE, (key.conversation_id, key.agent_id)).fetchone()
    return row is not None and row[0] == change.id


def _fence(file: sqlite3.Connection, key: Key) -> int:
    row = file.execute(_FENCE, (key.conversation_id, key.agent_id)).fetchone()
    return row[0] if row else 0


def _raise_fence(file: sqlite3.Connection, key: Key, token: int) -> bool:
    """Raise the fencing token; return False if the stored one is higher."""
    with writing(file):
        return file.execute(_RAISE_FENCE, (key.conversation_id, key.agent_id, token)).fetchone() is not None


def _remove(file: sqlite3.Connection, key: Key, version: int) -> bool:
    with writing(file):
        row = file.execute(_FIND, (key.conversation_id, key.agent_id)).fetchone()
        log, found = row or (None, 0)
        if found != version:
            return False
        for table, column in (("logs", "id"), ("trees", "log"), ("nodes", "log")):
            file.execute(f"DELETE FROM {table} WHERE {column} = ?", (log,))  # noqa: S608 - constants of the line above
    return True


def _page(
    file: sqlite3.Connection, log: int, at: tuple[int, int], times: tuple[float, float], kinds: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return the next page of a scan after the segment and index `at`."""
    named = [] if DAMAGED in kinds else kinds
    wanted = f"AND t IN ({', '.join('?' * len(named))})" if named else ""
    return file.execute(_SCAN.format(kinds=wanted, page=_PAGE), (log, *at, *times, *named)).fetchall()


def _row(log: int, node: Node) -> tuple[Any, ...]:
    envelope = node.envelope
    return (
        *(log, node.segment, node.index, envelope["v"], envelope["t"], envelope["ts"]),
        *(envelope["compressed"], envelope["data"], _as_json(about(node))),
    )


def _named(rows: list[tuple[Any, ...]]) -> list[tuple[int, Key]]:
    """Return row ids and keys of logs, without logs whose ids are damaged."""
    return [(log, Key(*ids)) for log, *ids in rows if all(isinstance(each, str) and each for each in ids)]


def _node(row: tuple[Any, ...]) -> Node:
    segment, index, v, t, ts, compressed, data, about_json = row
    try:
        fields = json.loads(about_json)
    except (TypeError, ValueError, RecursionError):
        return damaged(segment, index)
    return stored.node(segment, index, {"v": v, "t": t, "ts": ts, "data": data, "compressed": bool(compressed)}, fields)
