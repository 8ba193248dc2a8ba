"""The backend for an SQLite file, which one service uses at a time; see `service.store.base.Backend`."""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from connector.protocols import ThreadFacts
from orchestrator_interactive.interactions.stores import open_store as open_logs
from orchestrator_interactive.storage import sqlite as storage
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.sqlite import Database, sqlite_path, via
from service.store.base import (
    GRACE_S,
    KEPT_ENTRIES,
    KEPT_S,
    MOST_DOCUMENTS,
    Admission,
    Count,
    as_json,
    boottime_s,
    claim_of,
    conversation_record,
    documents_of,
    entry_of,
    lost,
    readable,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from connector.protocols import Claim, InboxEntry, StateChanges
    from service.store.base import ConversationRecord, RunStore

__all__ = ["inspect_runs", "open_budget", "open_logs", "open_runs", "refuse_unprepared"]

# Timeout of `wait_for_notifications`, in seconds.
_WAIT_S = 1.0
_VERSION = 1
# After the name of a file, in the name that a restore gives it.
ASIDE = ".before-"
# The workspace in a conversation's id, as in `workspace_of`. SQLite uses the index only for exactly this expression.
_WORKSPACE = "substr(conversation, 1, instr(conversation || ':', ':') - 1)"

_TABLES = (
    # `owner` is NULL after a release; `back` is the fencing token of the last released lease. `todo`: there is pending
    # work; `due`: when other processes may claim it. Times are in seconds since the epoch.
    """CREATE TABLE IF NOT EXISTS run_conversations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL UNIQUE, agent TEXT,
        seq INTEGER NOT NULL DEFAULT 0, held_seq INTEGER NOT NULL DEFAULT 0, run TEXT,
        token INTEGER NOT NULL DEFAULT 0, owner TEXT, until REAL NOT NULL DEFAULT 0, back INTEGER,
        todo INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL DEFAULT 0, changed REAL NOT NULL,
        stopped_s REAL NOT NULL DEFAULT 0)""",
    # An entry is pending while `end` is NULL.
    """CREATE TABLE IF NOT EXISTS run_entries (
        conversation INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
        data TEXT, "end" TEXT, PRIMARY KEY (conversation, seq), UNIQUE (conversation, id))""",
    """CREATE TABLE IF NOT EXISTS run_posts (
        conversation INTEGER NOT NULL, part TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (conversation, part))
        WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS run_facts (
        conversation INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (conversation, name))
        WITHOUT ROWID""",
    f"CREATE INDEX IF NOT EXISTS run_due_in ON run_conversations ({_WORKSPACE}, due) WHERE todo",
    'CREATE INDEX IF NOT EXISTS run_waiting ON run_entries (conversation, seq) WHERE "end" IS NULL',
    # Number of entries whose ids have expired, by `end`.
    """CREATE TABLE IF NOT EXISTS run_forgotten (
        conversation INTEGER NOT NULL, "end" TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (conversation, "end"))
        WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS run_documents (
        number INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, name TEXT NOT NULL, data TEXT NOT NULL,
        UNIQUE (collection, name))""",
    "CREATE TABLE IF NOT EXISTS run_version (version INTEGER NOT NULL)",
)
_FIND = "SELECT id, seq, held_seq, token, owner, until, todo FROM run_conversations WHERE conversation = ?"
_BEGIN = "INSERT OR IGNORE INTO run_conversations (conversation, changed) VALUES (?, ?)"
_ADD = "INSERT OR IGNORE INTO run_entries VALUES (?, ?, ?, ?, ?, NULL) RETURNING seq"
_GROW = """UPDATE run_conversations SET seq = ?, agent = coalesce(?, agent), todo = ?, due = iif(?, ?, due), changed = ?
    WHERE id = ?"""
# A text that is not UTF-8 is read as NULL, which is no run: the bytes of a run are read.
_RUN = "CAST(run AS BLOB)"
_CLAIM = f"""UPDATE run_conversations SET token = ?, owner = ?, until = ?, due = ? WHERE id = ?
    RETURNING {_RUN}, stopped_s"""  # noqa: S608 - no part is user input
_RENEW = """UPDATE run_conversations SET until = ?, due = ?
    WHERE conversation = ? AND token = ? AND owner IS NOT NULL RETURNING seq"""
_OWNED = "SELECT id, seq FROM run_conversations WHERE conversation = ? AND token = ? AND owner IS NOT NULL"
_RELEASED = "SELECT 1 FROM run_conversations WHERE conversation = ? AND back = ?"
_RELEASE = "UPDATE run_conversations SET owner = NULL, until = 0, back = token, due = ? WHERE id = ?"
_WAITING = """SELECT seq, id, kind, data FROM run_entries
    WHERE conversation = ? AND seq > ? AND "end" IS NULL ORDER BY seq"""
_REPLACE = 'UPDATE run_entries SET data = ? WHERE conversation = ? AND seq = ? AND "end" IS NULL'
_CLOSE = 'UPDATE run_entries SET "end" = ?, data = NULL WHERE conversation = ? AND seq = ? AND "end" IS NULL'
_LOOK = """UPDATE run_conversations SET changed = ?, todo = run IS NOT NULL OR EXISTS (
        SELECT 1 FROM run_entries AS entry
        WHERE entry.conversation = run_conversations.id AND "end" IS NULL AND entry.seq > held_seq)
    WHERE id = ?"""
_DUE = f"""SELECT conversation FROM run_conversations WHERE {_WORKSPACE} = ? AND todo AND due <= ?
    ORDER BY due, id LIMIT ?"""  # noqa: S608 - no part is user input
_POSTS = "SELECT part, content FROM run_posts WHERE conversation = ?"
_RECORD = f"""SELECT id, agent, owner, until, seq, held_seq, {_RUN}, todo FROM run_conversations
    WHERE conversation = ?"""  # noqa: S608 - no part is user input
_ENTRIES = 'SELECT seq, id, kind, data, "end" FROM run_entries WHERE conversation = ? ORDER BY seq'
_LEARN = """INSERT INTO run_facts SELECT id, ?, ? FROM run_conversations WHERE conversation = ?
    ON CONFLICT DO UPDATE SET
        value = iif(name GLOB 'person:*', min(value, excluded.value), max(value, excluded.value))"""
_THREAD = """SELECT agent, name, value FROM run_conversations LEFT JOIN run_facts ON run_facts.conversation = id
    WHERE run_conversations.conversation = ?"""
_FORGOTTEN = 'SELECT "end", count FROM run_forgotten WHERE conversation = ?'
_ORPHANS = "SELECT id FROM run_entries WHERE conversation NOT IN (SELECT id FROM run_conversations) ORDER BY rowid"
_COUNT_IDS = """INSERT INTO run_forgotten SELECT conversation, "end", count(*) FROM run_entries
    WHERE "end" IS NOT NULL AND {which} GROUP BY conversation, "end"
    ON CONFLICT DO UPDATE SET count = count + excluded.count"""
_FORGET_IDS = 'DELETE FROM run_entries WHERE "end" IS NOT NULL AND {which}'
_UNCHANGED = "conversation IN (SELECT id FROM run_conversations WHERE changed < ?)"
# Seconds since the epoch: the last change before a backup, and its restore. An earlier restore is kept in mind.
_MARK_GAP = """UPDATE {table} SET {column} = json_set({column}, '$.gap', json_object(
        'since_s', coalesce(json_extract({column}, '$.gap.since_s'), ?), 'until_s', ?))
    WHERE json_valid({column}) AND {which}"""
_MARK_SCHEDULES = """UPDATE run_documents SET data = json_set(data, '$.restored_s', ?)
    WHERE collection LIKE 'schedules:%' AND json_valid(data)"""
_PUT_DOCUMENT = "INSERT OR REPLACE INTO run_documents (collection, name, data) VALUES (?, ?, ?)"
_REPLACE_DOCUMENT = """UPDATE run_documents SET data = ?1 WHERE collection = ?2 AND name = ?3 AND data IN (?1, ?4)
    RETURNING number"""
_ADD_DOCUMENT = """INSERT INTO run_documents (collection, name, data) VALUES (?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING number"""
_DOCUMENTS = "SELECT name, data FROM run_documents WHERE collection = ? ORDER BY number DESC"
_COLLECTIONS = "SELECT DISTINCT collection FROM run_documents WHERE collection GLOB ? || '*'"
_DOCUMENT = "SELECT name, data FROM run_documents WHERE collection = ? AND name = ?"
_TRIM_DOCUMENTS = """DELETE FROM run_documents WHERE number IN (
    SELECT number FROM run_documents WHERE collection = ? ORDER BY number DESC LIMIT -1 OFFSET ?)"""
_DELETE_DOCUMENT = """DELETE FROM run_documents WHERE collection = ? AND name = ? AND data = coalesce(?, data)
    RETURNING number"""
_DELETE_UNUSED_FENCES = """DELETE FROM fences WHERE NOT EXISTS (
    SELECT 1 FROM logs WHERE logs.conversation = fences.conversation AND logs.agent = fences.agent)"""


class SqliteRunStore:
    """A run store in the file of the logs.

    An operating system lock on `FILE.lock` excludes other services; it ends with the process. Symbolic links are
    resolved to the same lock.

    Args:
        clock: monotonic seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self.database = database
        self._lock: int | None = None
        self._clock = clock
        self._news: dict[str, dict[str, None]] = defaultdict(dict)
        self._has_news: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @classmethod
    async def open(cls, path: Path, clock: Callable[[], float] | None = None) -> Self:
        """Open the store without a lock, for reading and pruning."""
        return cls(await Database.open(path, "runs", prepare), clock or _steady_clock())

    async def lock(self, path: Path) -> None:
        """Lock the file for a service; leases found in it are invalid.

        Raises:
            StoreError: another service uses it; nothing was changed.
        """
        self._lock = _locked(path)
        await self.database.write_in_thread(lambda file: end_leases(file, self._clock()))

    async def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> Admission:
        admission = await self._admit(conversation_id, entry, agent, facts)
        if admission.is_new and admission.owner is not None:
            self._news[admission.owner][conversation_id] = None
            self._has_news[admission.owner].set()
        return admission

    @via(Database.write)
    def _admit(
        self,
        file: sqlite3.Connection,
        conversation_id: str,
        entry: InboxEntry,
        agent: str | None,
        facts: Mapping[str, str] | None,
    ) -> Admission:
        now = self._clock()
        number, last, held_seq, _, owner, until, todo = _found(file, conversation_id, now)
        valid = owner if until > now else None
        seq = last + 1
        if file.execute(_ADD, (number, seq, entry.id, entry.kind, as_json(entry.data))).fetchone() is None:
            return Admission(is_new=False, owner=valid)
        has_grace = valid is None and not todo
        _learn(file, conversation_id, facts or {})
        file.execute(_GROW, (seq, agent, todo or seq > held_seq, has_grace, now + GRACE_S, now, number))
        return Admission(is_new=True, owner=valid)

    @via(Database.write)
    def claim(self, file: sqlite3.Connection, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        now = self._clock()
        number, _, held_seq, token, current, until, _ = _found(file, conversation_id, now)
        with readable(conversation_id):
            if current not in (None, owner) and until > now:
                return None
            # Time-based, so that tokens keep increasing if the conversation is deleted and recreated.
            token = max(token + 1, int(now * 1_000_000))
            ((run, stopped_s),) = file.execute(_CLAIM, (token, owner, now + lease_s, now + lease_s, number)).fetchall()
            posts = dict(file.execute(_POSTS, (number,)).fetchall())
            return claim_of(token, run, posts, held_seq, stopped_s, file.execute(_WAITING, (number, 0)))

    @via(Database.write)
    def renew(self, file: sqlite3.Connection, conversation_id: str, token: int, lease_s: float) -> int:
        until = self._clock() + lease_s
        row = file.execute(_RENEW, (until, until, conversation_id, token)).fetchone()
        if row is None:
            raise lost(conversation_id)
        seq: int = row[0]
        return seq

    @via(Database.write)
    def renew_all(self, file: sqlite3.Connection, tokens: Mapping[str, int], lease_s: float) -> dict[str, int]:
        until = self._clock() + lease_s
        rows = {name: file.execute(_RENEW, (until, until, name, token)).fetchone() for name, token in tokens.items()}
        return {name: row[0] for name, row in rows.items() if row is not None}

    def server_of(self, _conversation_id: str) -> str:
        return ""

    async def beat(self, _owner: str) -> dict[str, int]:
        return {}

    async def end_leases(self, _owner: str, _unrenewed_s: float) -> bool:
        return True  # they ended when this process opened the file

    @via(Database.read)
    def fetch(self, file: sqlite3.Connection, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        number, _ = _owned(file, conversation_id, token)
        with readable(conversation_id):
            return tuple(map(entry_of, file.execute(_WAITING, (number, after)).fetchall()))

    @via(Database.write)
    def write(self, file: sqlite3.Connection, conversation_id: str, token: int, changes: StateChanges) -> None:
        number, last = _owned(file, conversation_id, token)
        for part, content in changes.posts.items():
            file.execute("REPLACE INTO run_posts VALUES (?, ?, ?)", (number, part, as_json(content)))
        if changes.run is not None:
            run = as_json(changes.run) if changes.run else None
            file.execute("UPDATE run_conversations SET run = ? WHERE id = ?", (run, number))
        if changes.deletes_posts:
            file.execute("DELETE FROM run_posts WHERE conversation = ?", (number,))
        if changes.held_seq is not None:
            file.execute("UPDATE run_conversations SET held_seq = ? WHERE id = ?", (changes.held_seq, number))
        if changes.stopped_s is not None:
            file.execute("UPDATE run_conversations SET stopped_s = ? WHERE id = ?", (changes.stopped_s, number))
        for seq, data in changes.replaced.items():
            file.execute(_REPLACE, (as_json(data), number, seq))
        for seq, end in changes.closed.items():
            file.execute(_CLOSE, (end, number, seq))
        if changes.closed and last > KEPT_ENTRIES:
            _forget_ids(file, "conversation = ? AND seq <= ?", number, last - KEPT_ENTRIES)
        file.execute(_LOOK, (self._clock(), number))

    @via(Database.write)
    def release(
        self, file: sqlite3.Connection, conversation_id: str, token: int, seen: int | None, due_in_s: float = 0.0
    ) -> bool:
        if file.execute(_RELEASED, (conversation_id, token)).fetchone():
            return True
        number, _ = _owned(file, conversation_id, token)
        if seen is not None and file.execute(_WAITING, (number, seen)).fetchone():
            return False
        file.execute(_RELEASE, (self._clock() + due_in_s, number))
        return True

    @via(Database.read)
    def due(self, file: sqlite3.Connection, workspace: str, most: int) -> list[str]:
        return _names(file, _DUE, workspace, self._clock(), most)

    @via(Database.read_in_thread)
    def unfinished(self, file: sqlite3.Connection) -> list[str]:
        return _names(file, "SELECT conversation FROM run_conversations WHERE todo ORDER BY id")

    async def wait_for_notifications(self, owner: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._has_news[owner].wait()
        except TimeoutError:
            return ()
        self._has_news[owner].clear()
        return tuple(self._news.pop(owner, ()))

    @via(Database.read)
    def thread_of(self, file: sqlite3.Connection, conversation_id: str) -> ThreadFacts:
        rows = file.execute(_THREAD, (conversation_id,)).fetchall()
        return (
            ThreadFacts(rows[0][0], {name: value for _, name, value in rows if name and value})
            if rows
            else ThreadFacts()
        )

    @via(Database.write)
    def learn(self, file: sqlite3.Connection, conversation_id: str, facts: Mapping[str, str]) -> None:
        _learn(file, conversation_id, facts)

    async def conversations(self) -> list[str]:
        return await self.database.read_in_thread(conversations)

    async def record(self, conversation_id: str) -> ConversationRecord | None:
        return await self.database.read_in_thread(lambda file: record_of(file, self._clock(), conversation_id))

    @via(Database.read_in_thread)
    def orphans(self, file: sqlite3.Connection) -> list[str]:
        return _firsts(file, _ORPHANS)

    @via(Database.read_in_thread)
    def idle_since(self, file: sqlite3.Connection, since: float) -> list[str]:
        return _names(file, "SELECT conversation FROM run_conversations WHERE changed < ?", since)

    @via(Database.write_in_thread)
    def delete_expired(self, file: sqlite3.Connection) -> None:
        _expire(file, self._clock())

    @via(Database.write_in_thread)
    def forget(self, file: sqlite3.Connection, conversation_id: str) -> bool:
        row = file.execute(_FIND, (conversation_id,)).fetchone()
        if row is None:
            return False
        number, _, _, _, owner, until, todo = row
        if todo or (owner is not None and until > self._clock()):
            return False
        file.execute("DELETE FROM run_conversations WHERE id = ?", (number,))
        for table in ("run_entries", "run_posts", "run_facts", "run_forgotten"):
            file.execute(f"DELETE FROM {table} WHERE conversation = ?", (number,))  # noqa: S608 - a constant
        return True

    @via(Database.write)
    def put_document(
        self,
        file: sqlite3.Connection,
        collection: str,
        name: str,
        data: Mapping[str, Any],
        most: int = MOST_DOCUMENTS,
    ) -> None:
        file.execute(_PUT_DOCUMENT, (collection, name, as_json(data)))
        file.execute(_TRIM_DOCUMENTS, (collection, most))

    @via(Database.write)
    def replace_document(  # noqa: PLR0913, PLR0917 - the last one has a default
        self,
        file: sqlite3.Connection,
        collection: str,
        name: str,
        known: Mapping[str, Any],
        data: Mapping[str, Any],
        most: int | None = None,
    ) -> bool:
        arguments = (as_json(data), collection, name, as_json(known))
        if file.execute(_REPLACE_DOCUMENT, arguments).fetchall():
            return True
        if known or not file.execute(_ADD_DOCUMENT, (collection, name, as_json(data))).fetchall():
            return False
        if most is not None:
            file.execute(_TRIM_DOCUMENTS, (collection, most))
        return True

    @via(Database.read)
    def documents(
        self, file: sqlite3.Connection, collection: str, name: str | None = None
    ) -> dict[str, dict[str, Any]]:
        if name is None:
            return documents_in(file, collection)
        return documents_of(file.execute(_DOCUMENT, (collection, name)).fetchall())

    @via(Database.read_in_thread)
    def collections(self, file: sqlite3.Connection, prefix: str = "") -> list[str]:
        return _names(file, _COLLECTIONS, prefix)

    @via(Database.write)
    def delete_document(
        self, file: sqlite3.Connection, collection: str, name: str, known: Mapping[str, Any] | None = None
    ) -> bool:
        arguments = (collection, name, None if known is None else as_json(known))
        return bool(file.execute(_DELETE_DOCUMENT, arguments).fetchall())

    async def aclose(self) -> None:
        """Close the file after pending writes, and release the lock."""
        await self.database.aclose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


async def open_runs(url: str) -> RunStore:
    path = sqlite_path(url)
    store = await SqliteRunStore.open(path)
    try:
        await store.lock(path)
    except BaseException:
        await store.aclose()
        raise
    return store


async def inspect_runs(url: str) -> RunStore:
    return await SqliteRunStore.open(sqlite_path(url))


async def open_budget(_url: str) -> None:
    """Return `None`: the store has one service."""


def refuse_unprepared(url: str) -> None:
    storage.refuse_unprepared(sqlite_path(url), _is_prepared)


def prepare(file: sqlite3.Connection) -> None:
    """Create missing tables.

    Raises:
        StoreError: the file has a newer version.
    """
    found = _version(file)
    if found > _VERSION:
        raise StoreError(
            f"The run tables of the file have version {found}; this installation supports up to version {_VERSION}. "
            "Update amplifier-slack, or use another file."
        )
    for statement in _TABLES:
        file.execute(statement)
    if not found:
        file.execute("INSERT INTO run_version VALUES (?)", (_VERSION,))


def end_leases(file: sqlite3.Connection, now: float) -> None:
    """End all leases and unused fences of earlier processes, and delete expired ids. Requires the file's lock."""
    file.execute("UPDATE run_conversations SET until = 0, due = min(due, ?)", (now,))
    if file.execute("SELECT 1 FROM sqlite_master WHERE name = 'fences'").fetchone():  # the logs' table
        file.execute(_DELETE_UNUSED_FENCES)
    _expire(file, now)


def mark_gap(file: sqlite3.Connection, until_s: float) -> float:
    """Mark active runs, pending messages and schedules as from a backup that was restored at `until_s`.

    Returns the time of the last change in the backup, in seconds since the epoch.
    """
    (since_s,) = _firsts(file, "SELECT coalesce(max(changed), 0) FROM run_conversations")
    for table, column, which in (
        ("run_conversations", "run", "json_extract(run, '$.id') IS NOT NULL"),
        ("run_entries", "data", "\"end\" IS NULL AND kind = 'message'"),
    ):
        file.execute(_MARK_GAP.format(table=table, column=column, which=which), (since_s, until_s))
    file.execute(_MARK_SCHEDULES, (math.ceil(until_s),))
    return float(since_s)


def documents_in(file: sqlite3.Connection, collection: str) -> dict[str, dict[str, Any]]:
    return documents_of(file.execute(_DOCUMENTS, (collection,)).fetchall())


def conversations(file: sqlite3.Connection) -> list[str]:
    return _names(file, "SELECT conversation FROM run_conversations ORDER BY id")


def record_of(file: sqlite3.Connection, now: float, conversation_id: str) -> ConversationRecord | None:
    """Read a conversation in one transaction."""
    file.execute("BEGIN")
    try:
        row = file.execute(_RECORD, (conversation_id,)).fetchone()
        if row is None:
            return None
        entries, posts, forgotten = (file.execute(s, row[:1]).fetchall() for s in (_ENTRIES, _POSTS, _FORGOTTEN))
    finally:
        file.rollback()
    with readable(conversation_id):
        _, agent, owner, until, seq, held_seq, run, todo = row
        ends = {name: end for _, name, _, _, end in entries if end is not None}
        old = dict(forgotten)
        record = conversation_record(
            run,
            dict(posts),
            [each[:4] for each in entries if each[4] is None],
            agent=agent,
            owner=owner,
            is_owned=owner is not None and until > now,
            held_seq=held_seq,
            ends=ends,
            order=tuple(each[1] for each in entries),
            count=Count(seq, Counter(ends.values()) + Counter(old), sum(old.values())),
        )
        return replace(record, is_overlooked=record.has_something_to_do and not todo)


def _version(file: sqlite3.Connection) -> int:
    """Return the version of the run tables; 0 if there is none."""
    found = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'run_version'").fetchone()
    return max(_firsts(file, "SELECT version FROM run_version"), default=0) if found else 0


def _is_prepared(file: sqlite3.Connection) -> bool:
    has_tables = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'run_conversations'").fetchone() is not None
    return has_tables and _version(file) >= _VERSION


def _expire(file: sqlite3.Connection, now: float) -> None:
    """Delete the ids of closed entries in conversations unchanged for a week; keep their counts."""
    _forget_ids(file, _UNCHANGED, now - KEPT_S)


def _forget_ids(file: sqlite3.Connection, which: str, *values: float) -> None:
    file.execute(_COUNT_IDS.format(which=which), values)
    file.execute(_FORGET_IDS.format(which=which), values)


def _learn(file: sqlite3.Connection, conversation_id: str, facts: Mapping[str, str]) -> None:
    file.executemany(_LEARN, [(*fact, conversation_id) for fact in facts.items()])


def _found(file: sqlite3.Connection, conversation_id: str, now: float) -> Any:
    """Return the result of `_FIND`; the conversation is created if it is missing."""
    row = file.execute(_FIND, (conversation_id,)).fetchone()
    if row is None:
        file.execute(_BEGIN, (conversation_id, now))
        row = file.execute(_FIND, (conversation_id,)).fetchone()
    return row


def _owned(file: sqlite3.Connection, conversation_id: str, token: int) -> tuple[int, int]:
    """Return a conversation's row id and the last sequence number in its inbox.

    Raises:
        LeaseLost: the fencing token is stale.
    """
    row: tuple[int, int] | None = file.execute(_OWNED, (conversation_id, token)).fetchone()
    if row is None:
        raise lost(conversation_id)
    return row


def _firsts(file: sqlite3.Connection, statement: str, *values: Any) -> list[Any]:
    return [first for (first,) in file.execute(statement, values)]


def _names(file: sqlite3.Connection, statement: str, *values: Any) -> list[str]:
    """Return the readable names, such as ids of conversations."""
    return [name for name in _firsts(file, statement, *values) if isinstance(name, str) and name]


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of the file, which may be missing, so that no service uses it.

    Raises:
        StoreError: a service uses it, or its folder or the lock cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StoreError(storage.problem(path, e)) from e
    lock = _locked(path)
    try:
        yield
    finally:
        os.close(lock)


def _locked(path: Path) -> int:
    """Take the lock of the file and return its file descriptor.

    Raises:
        StoreError: another process holds the lock, or it cannot be created.
    """
    path = path.resolve()
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        lock = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise StoreError(storage.problem(lock_path, e)) from e
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        os.close(lock)
        raise StoreError(f"Another service uses {path}. Stop it, or use Redis to run several services.") from e
    try:
        _refuse_links(path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _refuse_links(path: Path) -> None:
    """Remove the second name of a file that a restore did not replace. Requires the file's lock.

    Raises:
        StoreError: the file has another name, and SQLite's journal has only one name.
    """
    try:
        if not path.exists() or path.stat().st_nlink == 1:
            return
        for other in path.parent.iterdir():
            if other.name.startswith(f"{path.name}{ASIDE}") and other.samefile(path):
                other.unlink()
        if path.stat().st_nlink > 1:
            raise StoreError(f"{path} has a second hard link, which can corrupt the file. Remove one link.")
    except OSError as e:
        raise StoreError(storage.problem(path, e)) from e


def _steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since the epoch that ignores changes of the system time, so that leases stay valid."""
    began = time.time() - boottime_s()
    return lambda: began + boottime_s()
