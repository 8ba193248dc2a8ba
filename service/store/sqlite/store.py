"""Runs in the SQLite file of the logs, for one process on one machine."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections import defaultdict
from contextlib import closing
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

# For how long news are waited for before the caller is asked to ask again, in seconds.
_WAIT_S = 1.0
_NAME = "runs"


class SqliteRunStore:
    """The run store's contract in a file.

    A lock of the operating system lies on a file beside it, so that no other process runs what this one does; it goes
    with the process, however that ends. Links lead to the same lock. Leases that are found in the file belong to
    nobody any more.

    Args:
        lock: the open file that has the lock; `None`: this is a visitor.
        clock: seconds since the epoch, that never go back.
    """

    def __init__(self, database: Database, lock: int | None, clock: Callable[[], float]) -> None:
        self._database = database
        self._lock = lock
        self._clock = clock
        self._news: dict[str, dict[str, None]] = defaultdict(dict)
        self._has_news: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @classmethod
    async def open(cls, path: Path, clock: Callable[[], float] | None = None) -> Self:
        """The store in this file, which is made where there is none.

        Raises:
            StoreError: it cannot be used, or another process uses it; nothing was changed.
        """
        clock = clock or _steady_clock()
        database = await Database.open(path, _NAME, schema.prepare)
        lock = None
        try:
            lock = _locked(path)
            await database.run(schema.let_go, clock())
        except BaseException:
            await database.aclose()
            if lock is not None:
                os.close(lock)
            raise
        return cls(database, lock, clock)

    @classmethod
    async def visit(cls, path: Path) -> Self:
        """The store as it is, whoever uses it meanwhile; a visitor owns no conversation.

        Raises:
            StoreError: it cannot be used; nothing was changed.
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

    async def hand_over(self, conversation_id: str, token: int, rest_s: float = 0.0) -> None:
        await self._database.write(steps.release, self._clock(), conversation_id, token, None, rest_s)

    async def due(self, workspace: str, most: int) -> list[str]:
        return await self._database.read(steps.due, self._clock(), workspace, most)

    async def woken(self, owner: str) -> Sequence[str]:
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

    async def known(self, conversation_id: str) -> ConversationRecord | None:
        return await self._database.run(records.known, self._clock(), conversation_id)

    async def strays(self) -> list[str]:
        return await self._database.run(records.strays)

    async def rested(self, since: float) -> list[str]:
        return await self._database.run(records.rested, since)

    async def tidy(self) -> None:
        await self._database.run(schema.tidy, self._clock())

    async def forget(self, conversation_id: str) -> bool:
        return await self._database.run(steps.forget, self._clock(), conversation_id)

    async def aclose(self) -> None:
        """Let go of the file once all that is on its way is written."""
        await self._database.aclose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def refuse_older(path: Path) -> None:
    """Raise StoreError where the file would have to be changed before anybody can look at its runs."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            ((version,),) = file.execute("PRAGMA user_version")
            ((tables,),) = file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'run_conversations'")
            is_older = not tables or version < sqlite_file.VERSION or schema.version(file) < schema.VERSION
    except (sqlite3.Error, TypeError):
        return  # whoever opens it is told why
    if is_older:
        raise StoreError(
            f"No service of this version has used {path} yet: start the service once, which brings it up to date."
        )


def _locked(path: Path) -> int:
    """The lock beside the file, taken.

    Raises:
        StoreError: another process has it, or there can be none.
    """
    path = path.resolve()
    beside = path.with_name(f"{path.name}.lock")
    try:
        if path.stat().st_nlink > 1:  # SQLite keeps its journal by name, too
            raise StoreError(f"{path} has another name (a hard link): remove one of them, they would damage the file.")
        lock = os.open(beside, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise StoreError(sqlite_file.problem(beside, e)) from e
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        os.close(lock)
        raise StoreError(f"Another service uses {path}: stop it, or use Redis for several.") from e
    return lock


def _steady_clock() -> Callable[[], float]:
    """Seconds since the epoch, as they went on since now: whoever sets the machine's clock changes no lease."""
    began = time.time() - time.monotonic()
    return lambda: began + time.monotonic()
