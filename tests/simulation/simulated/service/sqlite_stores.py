"""A real SQLite file in virtual time, for one process at a time. Its threads are timers."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from connector.protocols import Claim, InboxEntry, StateChanges
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stores import sqlite as sqlite_logs
from orchestrator_interactive.interactions.stores.base import Change, LogStore
from orchestrator_interactive.interactions.stores.sqlite import SqliteStore
from orchestrator_interactive.storage.errors import StoreUnavailable
from orchestrator_interactive.storage.sqlite import Database, open_database, open_writer
from service.store import sqlite as sqlite_runs
from service.store.base import Admission, ConversationRecord, RunStore
from service.store.sqlite import SqliteRunStore
from simulated.simulation import Simulation

from .store_observer import StoreObserver

T = TypeVar("T")

_EPOCH_S = 1_700_000_000.0
_MEMORY = Path("/dev/shm")  # noqa: S108 - the stores create their own folder there


def _prepare(file: sqlite3.Connection) -> None:
    sqlite_logs.prepare(file)
    sqlite_runs.prepare(file)


class TimerThread:
    """Replaces a thread: runs its work a little later, in order. Its work ends with the process that requested it."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._work: deque[Callable[[], None]] = deque()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                result = work(*arguments)
            except Exception as e:  # noqa: BLE001 - the caller gets it
                if not answer.done():
                    answer.set_exception(e)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.do(run)
        return await answer

    def do(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        self._sim.loop.call_later(self._sim.delay_s(0.0001, 0.002), self._do_next)

    def _do_next(self) -> None:
        self._work.popleft()()

    def end(self) -> None:
        """Nothing runs in the background."""


class SqliteStores:
    """A file and the connections to it. Those of a killed process are left as they are."""

    def __init__(self, sim: Simulation, _parts: Any, observer: StoreObserver):
        self._sim = sim
        self._observer = observer
        self._folder = Path(tempfile.mkdtemp(prefix="simulated-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self._path = self._folder / "logs.db"
        self._connections: list[sqlite3.Connection] = []
        self._reader = self._open()
        self.logs: LogStore = SqliteStore(self._database())
        self._lock: sqlite3.Connection | None = None

    async def connect(self, process: int) -> tuple[RunStore, LogStore]:
        runs = ObservedRunStore(await self._unlocked_database(), self._clock)
        runs.observe(self._observer, process, self._reader)
        logs = ObservedLogStore(self._database())
        logs.observe(self._observer, process)
        return runs, logs

    async def _unlocked_database(self) -> Database:
        """Wait until the file is not locked: a service that finds it locked exits, and is started again."""
        while True:
            if self._lock is None:
                database = self._database()
                with suppress(StoreUnavailable):
                    await database.write_in_thread(lambda file: sqlite_runs.end_leases(file, self._clock()))
                    return database
            await asyncio.sleep(0.2)

    def disconnect(self, process: int) -> None:
        """Leave the connections open, as a killed process does."""

    def go_away(self) -> None:
        """Lock the file, as another program does."""
        self._lock = self._open()
        self._lock.execute("BEGIN IMMEDIATE")

    def come_back(self) -> None:
        if self._lock is not None:
            self._lock.rollback()
            self._lock = None

    async def records(self) -> dict[str, ConversationRecord]:
        names, now = sqlite_runs.conversations(self._reader), self._clock()
        found = {name: sqlite_runs.record_of(self._reader, now, name) for name in names}
        return {name: record for name, record in found.items() if record is not None}

    async def documents(self, collection: str) -> dict[str, dict[str, Any]]:
        return sqlite_runs.documents_in(self._reader, collection)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        shutil.rmtree(self._folder)

    def _database(self) -> Database:
        thread: Any = TimerThread(self._sim)
        writer = open_writer(self._path)
        self._connections.append(writer)
        return Database(self._path, thread, self._open(), writer)

    def _open(self) -> sqlite3.Connection:
        connection = open_database(self._path, _prepare)
        connection.execute("PRAGMA busy_timeout = 0")  # waiting for a lock would take real time
        self._connections.append(connection)
        return connection

    def _clock(self) -> float:
        return _EPOCH_S + self._sim.now()


class ObservedRunStore(SqliteRunStore):
    def observe(self, observer: StoreObserver, process: int, reader: sqlite3.Connection) -> None:
        self._observer, self._process, self._reader = observer, process, reader

    async def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> Admission:
        admission = await super().admit(conversation_id, entry, agent, facts)
        if admission.is_new:
            record = self._record_of(conversation_id)
            self._observer.admitted(conversation_id, entry, record.order.index(entry.id) + 1 if record else 0)
        return admission

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        claim = await super().claim(conversation_id, owner, lease_s)
        if claim is not None:
            self._observer.claimed(conversation_id, self._process, claim)
        return claim

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        await super().write(conversation_id, token, changes)
        record = self._record_of(conversation_id)
        waiting = [entry.seq for entry in record.waiting] if record else []
        self._observer.wrote(conversation_id, self._process, changes, waiting)

    async def release(self, conversation_id: str, token: int, seen: int | None, due_in_s: float = 0.0) -> bool:
        is_released = await super().release(conversation_id, token, seen, due_in_s)
        if is_released:
            self._observer.released(conversation_id, self._process)
        return is_released

    def _record_of(self, conversation_id: str) -> ConversationRecord | None:
        return sqlite_runs.record_of(self._reader, self._clock(), conversation_id)


class ObservedLogStore(SqliteStore):
    def observe(self, observer: StoreObserver, process: int) -> None:
        self._observer, self._process = observer, process

    async def commit(self, key: Key, change: Change) -> None:
        await super().commit(key, change)
        self._observer.committed(key, change, self._process)
