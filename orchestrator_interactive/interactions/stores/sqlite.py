"""Logs in an SQLite file. A process that is killed loses nothing; a power cut can take the last moments along."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.errors import StoreError
from orchestrator_interactive.interactions.records import DAMAGED, Key, about, damaged
from orchestrator_interactive.interactions.stores import sqlite_file, stored
from orchestrator_interactive.interactions.stores.base import conflict, is_within, refuse_broken_text, refuse_orphan
from orchestrator_interactive.interactions.stores.one_thread import OneThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.stores.base import Change, Log

T = TypeVar("T")

_as_json = json.JSONEncoder(separators=(",", ":")).encode

# Of states that are read at a time.
_PAGE = 500
# Of states that are written without a thread.
_MOST_AT_ONCE = 50
# Of pushes, after which what was written is brought from the log of SQLite into the file.
_CHECKPOINT_EVERY = 500

_LOAD = """SELECT version, end, written, tree FROM logs LEFT JOIN trees ON log = id
    WHERE conversation = ? AND agent = ?"""
_GROW = """UPDATE logs SET version = version + 1, end = ?, written = ?
    WHERE conversation = ? AND agent = ? AND version = ? RETURNING id"""
_PLANT = "INSERT OR IGNORE INTO logs (conversation, agent, version, end, written) VALUES (?, ?, 1, ?, ?) RETURNING id"
_SAVE_TREE = "REPLACE INTO trees VALUES (?, ?)"
_ADD = "REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CUT = "DELETE FROM nodes WHERE log = ? AND segment = ? AND idx >= ? AND idx < ?"
_READ = """SELECT idx, v, t, ts, compressed, data, about FROM nodes
    WHERE log = (SELECT id FROM logs WHERE conversation = ? AND agent = ?) AND segment = ? AND idx >= ? AND idx < ?
    ORDER BY idx"""
_FIND = "SELECT id, version FROM logs WHERE conversation = ? AND agent = ?"
_KEYS = "SELECT id, conversation, agent FROM logs ORDER BY written DESC, conversation, agent"
_LOGS = "SELECT id, conversation, agent FROM logs ORDER BY id"
# What is damaged has the time 0, as `records.damaged` has it.
_SCAN = """SELECT segment, idx, v, t, ts, compressed, data, about FROM nodes
    WHERE log = ? AND (segment, idx) > (?, ?)
    AND coalesce(ts + 0.0, 0.0) >= ? AND coalesce(ts + 0.0, 0.0) < ? {kinds} ORDER BY segment, idx LIMIT {page}"""


class SqliteStore:
    """Logs in a file that several processes may have open.

    A push is written at once, on the loop's own thread: it is a copy into the system's cache, and takes a fraction of
    the way to another thread and back. Whatever may have to wait (for somebody else's lock, or for the disk) is done in
    a thread of its own, one after the other.
    """

    def __init__(
        self, path: Path, thread: OneThread, connection: sqlite3.Connection, writer: sqlite3.Connection
    ) -> None:
        self._path = path
        self._thread = thread
        self._connection = connection
        self._writer = writer
        self._since_checkpoint, self._is_behind = 0, False
        self._identity = sqlite_file.identity(path)
        self._is_open = True

    @classmethod
    async def open(cls, path: Path) -> Self:
        """The store in this file, which is made where there is none.

        Raises:
            StoreError: it cannot be used; nothing was changed.
        """
        thread, connection = OneThread("conversation-log"), None
        try:
            connection = await thread.run(sqlite_file.opened, path)
            return cls(path, thread, connection, sqlite_file.writer(path))
        except BaseException as e:
            if connection is not None:
                await thread.run(connection.close)
            thread.end()
            if isinstance(e, sqlite3.Error | OSError):
                raise StoreError(sqlite_file.problem(path, e)) from e
            raise

    async def load(self, key: Key) -> Log | None:
        row = await self._run(lambda file: file.execute(_LOAD, (key.conversation_id, key.agent_id)).fetchone())
        return stored.log(key, *row) if row else None

    async def commit(self, key: Key, change: Change) -> None:
        refuse_orphan(change)
        written = self._written_at_once(key, change) if self._may_be_at_once(change) else None
        if written is None:
            written = await self._run(_commit, key, change)
        if not written:
            raise conflict(key)

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        place = (key.conversation_id, key.agent_id, segment, start, stop)
        rows = await self._run(lambda file: file.execute(_READ, place).fetchall())
        return [_node((segment, *row)) for row in rows]

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

    async def aclose(self) -> None:
        """Close the file once all that is on its way is written."""
        if self._is_open:
            self._is_open = False
            self._writer.close()
            await self._thread.run(self._connection.close)
            self._thread.end()

    def _written_at_once(self, key: Key, change: Change) -> bool | None:
        """Write here and now; whether the log had the version. `None`: somebody else is writing just now."""
        self._refuse_closed()
        try:
            written = self._done(self._writer, _commit, key, change)
        except sqlite3.Error as e:
            if sqlite_file.is_busy(e):
                return None
            raise StoreError(sqlite_file.problem(self._path, e)) from e
        self._since_checkpoint += 1
        if self._since_checkpoint >= _CHECKPOINT_EVERY and not self._is_behind:
            self._since_checkpoint, self._is_behind = 0, True
            self._thread.do(self._catch_up)
        return written

    def _may_be_at_once(self, change: Change) -> bool:
        """Whether it is small, and the file is not so far behind that writers have to wait for it."""
        is_far_behind = self._is_behind and self._since_checkpoint >= _CHECKPOINT_EVERY
        return len(change.nodes) <= _MOST_AT_ONCE and not change.cuts and not is_far_behind

    def _catch_up(self) -> None:
        sqlite_file.checkpoint(self._connection)
        self._is_behind = False

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise StoreError("The conversation log has been closed: open it again.")

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` gives for the connection and these arguments, in the thread."""
        self._refuse_closed()
        try:
            return await self._thread.run(self._done, self._connection, work, *arguments)
        except sqlite3.Error as e:
            raise StoreError(sqlite_file.problem(self._path, e)) from e

    def _done(self, file: sqlite3.Connection, work: Callable[..., T], *arguments: Any) -> T:
        if sqlite_file.identity(self._path) != self._identity:
            raise StoreError(
                f"The conversation log {self._path} was removed or replaced while it was open: nothing is kept any "
                "more. Start again."
            )
        return work(file, *arguments)


def _commit(file: sqlite3.Connection, key: Key, change: Change) -> bool:
    """Write the change in one transaction, unless the log has another version."""
    tree = None if change.tree is None else _as_json(trees.written(change.tree))
    with _writing(file):
        log = _grown(file, key, change)
        if log is None:
            return False
        if tree is not None:
            file.execute(_SAVE_TREE, (log, tree))
        for node in change.nodes:
            file.execute(_ADD, _row(log, node))
        for cut in change.cuts:
            file.execute(_CUT, (log, cut.segment, cut.start, cut.stop))
    return True


def _grown(file: sqlite3.Connection, key: Key, change: Change) -> int | None:
    """The number of the log, whose version has been put up; `None`: it is another one than the change expects."""
    place = (key.conversation_id, key.agent_id)
    if change.version:
        row = file.execute(_GROW, (change.end, change.written, *place, change.version)).fetchone()
    else:
        row = file.execute(_PLANT, (*place, change.end, change.written)).fetchone()
    return row[0] if row else None


def _remove(file: sqlite3.Connection, key: Key, version: int) -> bool:
    with _writing(file):
        row = file.execute(_FIND, (key.conversation_id, key.agent_id)).fetchone()
        log, found = row or (None, 0)
        if found != version:
            return False
        for table, column in (("logs", "id"), ("trees", "log"), ("nodes", "log")):
            file.execute(f"DELETE FROM {table} WHERE {column} = ?", (log,))  # noqa: S608 - they stand in this line
    return True


def _page(
    file: sqlite3.Connection, log: int, at: tuple[int, int], times: tuple[float, float], kinds: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The next rows of a log that may be asked for, after the segment and index `at`."""
    named = [] if DAMAGED in kinds else kinds
    wanted = f"AND t IN ({', '.join('?' * len(named))})" if named else ""
    return file.execute(_SCAN.format(kinds=wanted, page=_PAGE), (log, *at, *times, *named)).fetchall()


@contextmanager
def _writing(file: sqlite3.Connection) -> Iterator[None]:
    """A transaction: all that is done in it, or nothing."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        file.rollback()
        raise


def _row(log: int, node: Node) -> tuple[Any, ...]:
    envelope = node.envelope
    return (
        *(log, node.segment, node.index, envelope["v"], envelope["t"], envelope["ts"]),
        *(envelope["compressed"], envelope["data"], _as_json(about(node))),
    )


def _named(rows: list[tuple[Any, ...]]) -> list[tuple[int, Key]]:
    """The numbers and keys of logs; nobody can ask for one whose ids are damaged."""
    return [(log, Key(*ids)) for log, *ids in rows if all(ids)]


def _node(row: tuple[Any, ...]) -> Node:
    segment, index, v, t, ts, compressed, data, beside = row
    try:
        told = json.loads(beside)
    except (TypeError, ValueError, RecursionError):
        return damaged(segment, index)
    return stored.node(segment, index, {"v": v, "t": t, "ts": ts, "data": data, "compressed": bool(compressed)}, told)
