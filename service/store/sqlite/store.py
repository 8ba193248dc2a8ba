"""The run store in the SQLite file of the logs, for a single process."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections import defaultdict
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING, Self

from orchestrator_interactive.storage import sqlite_file
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.sqlite import Database
from service.store.sqlite import records, schema
from service.store.sqlite import statements as steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from connector.protocols import Claim, InboxEntry, StateChanges
    from service.store.base import Admission, ConversationRecord

# Timeout of `wait_for_notifications`, in seconds.
_WAIT_S = 1.0
_NAME = "runs"


class SqliteRunStore:
    """A run store in a file.

    An operating system lock on `FILE.lock` excludes other services; it ends with the process. Symbolic links are
    resolved to the same lock. Leases found in the file are therefore invalid.

    Args:
        lock: file descriptor that holds the lock; `None` if the store was opened with `inspect`.
        clock: monotonic seconds since the epoch.
    """

    def __init__(self, database: Database, lock: int | None, clock: Callable[[], float]) -> None:
        self._database = database
        self._lock = lock
        self._clock = clock
        self._news: dict[str, dict[str, None]] = defaultdict(dict)
        self._has_news: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @classmethod
    async def open(cls, path: Path, clock: Callable[[], float] | None = None) -> Self:
        """Open the store in a file, creating it if needed, and lock it.

        Raises:
            StoreError: the file cannot be used, or another service uses it; nothing was changed.
        """
        clock = clock or _steady_clock()
        database = await Database.open(path, _NAME, schema.prepare)
        store = cls(database, None, clock)
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(store.aclose)
            store._lock = _locked(path)
            await database.run(schema.end_leases, clock())
            on_failure.pop_all()
        return store

    @classmethod
    async def inspect(cls, path: Path) -> Self:
        """Open the store without a lock, for reading and pruning. Claims no conversation.

        Raises:
            StoreError: the file cannot be used; nothing was changed.
        """
        return cls(await Database.open(path, _NAME, schema.prepare), None, _steady_clock())

    async def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        admission = await self._database.write(steps.admit, self._clock(), conversation_id, entry, agent)
        if admission.is_new and admission.owner is not None:
            self._news[admission.owner][conversation_id] = None
            self._has_news[admission.owner].set()
        return admission

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        return await self._database.write(steps.claim, self._clock(), conversation_id, owner, lease_s)

    async def renew(self, conversation_id: str, token: int, lease_s: float) -> int:
        return await self._database.write(steps.renew, self._clock(), conversation_id, token, lease_s)

    async def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        return await self._database.read(steps.fetch, conversation_id, token, after)

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        await self._database.write(steps.write, self._clock(), conversation_id, token, changes)

    async def release(self, conversation_id: str, token: int, seen: int) -> bool:
        return await self._database.write(steps.release, self._clock(), conversation_id, token, seen)

    async def hand_over(self, conversation_id: str, token: int, due_in_s: float = 0.0) -> None:
        await self._database.write(steps.release, self._clock(), conversation_id, token, None, due_in_s)

    async def due(self, workspace: str, most: int) -> list[str]:
        return await self._database.read(steps.due, self._clock(), workspace, most)

    async def wait_for_notifications(self, owner: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._has_news[owner].wait()
        except TimeoutError:
            return ()
        self._has_news[owner].clear()
        return tuple(self._news.pop(owner, ()))

    async def agent_of(self, conversation_id: str) -> str | None:
        return await self._database.read(records.agent_of, conversation_id)

    async def conversations(self) -> list[str]:
        return await self._database.run(records.conversations)

    async def record(self, conversation_id: str) -> ConversationRecord | None:
        return await self._database.run(records.record_of, self._clock(), conversation_id)

    async def orphans(self) -> list[str]:
        return await self._database.run(records.orphans)

    async def idle_since(self, since: float) -> list[str]:
        return await self._database.run(records.idle_since, since)

    async def delete_expired(self) -> None:
        await self._database.run(schema.expire, self._clock())

    async def forget(self, conversation_id: str) -> bool:
        return await self._database.run(steps.forget, self._clock(), conversation_id)

    async def aclose(self) -> None:
        """Close the file after pending writes, and release the lock."""
        await self._database.aclose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def refuse_unprepared_file(path: Path) -> None:
    """Raise StoreError if opening the file would create its tables."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            ((version,),) = file.execute("PRAGMA user_version")
            ((tables,),) = file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'run_conversations'")
            is_unprepared = not tables or version < sqlite_file.VERSION or schema.version(file) < schema.VERSION
    except (sqlite3.Error, TypeError):
        return  # opening it reports the error
    if is_unprepared:
        raise StoreError(f"{path} has not been used by a service yet. Start the service once to prepare it.")


def _locked(path: Path) -> int:
    """Take the lock of the file and return its file descriptor.

    Raises:
        StoreError: another process holds the lock, or it cannot be created.
    """
    path = path.resolve()
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        if path.stat().st_nlink > 1:  # SQLite's journal has the file's name, too
            raise StoreError(f"{path} has a second hard link, which can corrupt the file. Remove one of them.")
        lock = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise StoreError(sqlite_file.problem(lock_path, e)) from e
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        os.close(lock)
        raise StoreError(f"Another service uses {path}. Stop it, or use Redis to run several services.") from e
    return lock


def _steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since the epoch that ignores changes of the system time, so that leases stay valid."""
    began = time.time() - time.monotonic()
    return lambda: began + time.monotonic()
