"""A real SQLite file for one process at a time, in simulated time: its threads are timers."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator_interactive.interactions.stores.sqlite import SqliteStore
from orchestrator_interactive.storage import sqlite_file
from orchestrator_interactive.storage.errors import StoreUnavailable
from orchestrator_interactive.storage.sqlite import Database
from service.store.sqlite import records as sqlite_records
from service.store.sqlite import schema
from service.store.sqlite.store import SqliteRunStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.protocols import Claim, InboxEntry, StateChanges
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores.base import Change, LogStore
    from service.store.base import Admission, ConversationRecord, RunStore
    from simulated.scenario import Scenario

    from .parts import Parts
    from .store_observer import Witness

T = TypeVar("T")

_BEGAN_S = 1_700_000_000.0
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there


class TimerThread:
    """In the place of a thread: does what it is asked for a little later, one after the other.

    It dies with the process that asks.
    """

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._asked: deque[Callable[[], None]] = deque()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def do() -> None:
            try:
                given = work(*arguments)
            except Exception as e:  # noqa: BLE001 - whoever asked is told
                if not answer.done():
                    answer.set_exception(e)
            else:
                if not answer.done():
                    answer.set_result(given)

        self.do(do)
        return await answer

    def do(self, work: Callable[[], None]) -> None:
        self._asked.append(work)
        self._scene.loop.call_later(self._scene.some_s(0.0001, 0.002), self._do_next)

    def _do_next(self) -> None:
        self._asked.popleft()()

    def end(self) -> None:
        """It holds nothing up."""


class SqliteStores:
    """A file, and connections to it. Those of a dead process are dropped as they are."""

    def __init__(self, scene: Scenario, _parts: Parts, witness: Witness) -> None:
        self._scene = scene
        self._witness = witness
        self._folder = Path(tempfile.mkdtemp(prefix="simulated-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self._path = self._folder / "logs.db"
        self._connections: list[sqlite3.Connection] = []
        self._looking = self._opened()
        self.logs: LogStore = SqliteStore(self._database())
        self._lock: sqlite3.Connection | None = None

    async def doors(self, process: int) -> tuple[RunStore, LogStore]:
        database = await self._begun()
        runs = WitnessedRunStore(database, None, self._clock)
        runs.seen_by(self._witness, process, self._looking)
        logs = WitnessedLogStore(self._database())
        logs.seen_by(self._witness, process)
        return runs, logs

    async def _begun(self) -> Database:
        """The file, once nobody else has it locked: a service that finds it so ends, and is started again."""
        while True:
            if self._lock is None:
                database = self._database()
                with suppress(StoreUnavailable):
                    await database.run(schema.end_leases, self._clock())
                    return database
            await asyncio.sleep(0.2)

    def dead(self, process: int) -> None:
        """Its connections are not closed, and nobody uses them any more."""

    def go_away(self) -> None:
        """Somebody else has the file locked."""
        self._lock = self._opened()
        self._lock.execute("BEGIN IMMEDIATE")

    def come_back(self) -> None:
        if self._lock is not None:
            self._lock.rollback()
            self._lock = None

    async def known(self) -> dict[str, ConversationRecord]:
        names, now = sqlite_records.conversations(self._looking), self._clock()
        found = {name: sqlite_records.record_of(self._looking, now, name) for name in names}
        return {name: known for name, known in found.items() if known is not None}

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        shutil.rmtree(self._folder)

    def _database(self) -> Database:
        thread: Any = TimerThread(self._scene)
        writer = sqlite_file.open_writer(self._path)
        self._connections.append(writer)
        return Database(self._path, thread, self._opened(), writer)

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite_file.open_database(self._path, schema.prepare)
        connection.execute("PRAGMA busy_timeout = 0")  # a wait for somebody's lock would take real time
        self._connections.append(connection)
        return connection

    def _clock(self) -> float:
        return _BEGAN_S + self._scene.now()


class WitnessedRunStore(SqliteRunStore):
    """Tells the witness of every step that has taken effect."""

    def seen_by(self, witness: Witness, process: int, looking: sqlite3.Connection) -> None:
        self._witness, self._process, self._looking = witness, process, looking

    async def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        admission = await super().admit(conversation_id, entry, agent)
        if admission.is_new:
            known = sqlite_records.record_of(self._looking, self._clock(), conversation_id)
            self._witness.admitted(conversation_id, entry, known.order.index(entry.id) + 1 if known else 0)
        return admission

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        claim = await super().claim(conversation_id, owner, lease_s)
        if claim is not None:
            self._witness.claimed(conversation_id, self._process, claim)
        return claim

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        await super().write(conversation_id, token, changes)
        known = sqlite_records.record_of(self._looking, self._clock(), conversation_id)
        waiting = [entry.seq for entry in known.waiting] if known else []
        self._witness.wrote(conversation_id, self._process, changes, waiting)

    async def release(self, conversation_id: str, token: int, seen: int) -> bool:
        is_released = await super().release(conversation_id, token, seen)
        if is_released:
            self._witness.gave_back(conversation_id, self._process)
        return is_released

    async def hand_over(self, conversation_id: str, token: int, due_in_s: float = 0.0) -> None:
        await super().hand_over(conversation_id, token, due_in_s)
        self._witness.gave_back(conversation_id, self._process)


class WitnessedLogStore(SqliteStore):
    """Tells the witness of every commit."""

    def seen_by(self, witness: Witness, process: int) -> None:
        self._witness, self._process = witness, process

    async def commit(self, key: Key, change: Change) -> None:
        await super().commit(key, change)
        self._witness.committed(key, change, self._process)
