"""An open SQLite file: small writes run on the event loop's thread, everything else in a worker thread."""

from __future__ import annotations

import sqlite3
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

import structlog

from orchestrator_interactive.storage import sqlite_file
from orchestrator_interactive.storage.errors import StoreError, StoreReplaced, StoreUnavailable, TransactionError
from orchestrator_interactive.storage.thread import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Number of writes between two checkpoints of SQLite's write-ahead log.
_CHECKPOINT_EVERY = 500
# Errors of code that reads a value of an unexpected type.
_BAD_VALUES = (TypeError, ValueError, LookupError, AttributeError)


class Database:
    """A file that several processes may open.

    A small write runs on the event loop's thread: it copies into the system's cache and is much faster than a hop to
    another thread and back. Work that may wait for a lock or for the disk runs in a worker thread, one call at a time.

    All methods raise StoreError if the file cannot be used; StoreUnavailable if another process locks it, or if its
    disk is full or unavailable.
    """

    def __init__(
        self, path: Path, thread: WorkerThread, connection: sqlite3.Connection, writer: sqlite3.Connection
    ) -> None:
        self._path = path
        self._thread = thread
        self._connection = connection
        self._writer = writer
        self._since_checkpoint, self._is_behind = 0, False
        # Small writes handed to the thread, and those it has finished. Each counter is written by one thread.
        self._handed = self._done_there = 0
        self._identity = sqlite_file.identity(path)
        self._is_open = True

    @classmethod
    async def open(cls, path: Path, name: str, prepare: Callable[[sqlite3.Connection], None] | None = None) -> Self:
        """Open the file, which is created if it is missing; `name` names the thread. `prepare` may extend the schema.

        Raises:
            StoreError: it cannot be used; nothing was changed.
        """
        thread = WorkerThread(name)
        try:
            async with AsyncExitStack() as undo:
                undo.callback(thread.end)
                connection = await thread.run(sqlite_file.open_database, path, prepare)
                undo.push_async_callback(thread.run, connection.close)
                database = cls(path, thread, connection, sqlite_file.open_writer(path))
                undo.pop_all()
        except (sqlite3.Error, OSError, *_BAD_VALUES) as e:
            _raise_store_error(path, e)
        return database

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work` with a connection and these arguments in the thread; return its result."""
        self._refuse_closed()
        try:
            return await self._thread.run(self._done, self._connection, work, *arguments)
        except (sqlite3.Error, *_BAD_VALUES) as e:
            _raise_store_error(self._path, e)

    async def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work`, a small write, with a connection and arguments, on the loop's thread if no lock is held."""
        is_far_behind = self._is_behind and self._since_checkpoint >= _CHECKPOINT_EVERY
        if not is_far_behind and not self._is_busy:  # keeps the order of the calls
            self._refuse_closed()
            try:
                given = self._done(self._writer, work, *arguments)
            except (sqlite3.Error, *_BAD_VALUES) as e:
                if not isinstance(e, sqlite3.Error) or not sqlite_file.is_busy(e):
                    _raise_store_error(self._path, e)
            else:
                self._count_write()
                return given
        self._handed += 1
        return await self.run(self._counted, work, *arguments)

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work`, a small read, with a connection and arguments, on the loop's thread if no write is queued."""
        if self._is_busy:
            return await self.run(work, *arguments)
        self._refuse_closed()
        try:
            return self._done(self._writer, work, *arguments)
        except (sqlite3.Error, *_BAD_VALUES) as e:
            _raise_store_error(self._path, e)

    async def aclose(self) -> None:
        """Close the file after pending writes have finished."""
        if self._is_open:
            self._is_open = False
            self._writer.close()
            await self._thread.run(self._connection.close)
            self._thread.end()

    @property
    def _is_busy(self) -> bool:
        """Whether the thread has pending small writes."""
        return self._handed > self._done_there

    def _counted(self, file: sqlite3.Connection, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return work(file, *arguments)
        finally:
            self._done_there += 1

    def _count_write(self) -> None:
        self._since_checkpoint += 1
        if self._since_checkpoint >= _CHECKPOINT_EVERY and not self._is_behind:
            self._since_checkpoint, self._is_behind = 0, True
            self._thread.do(self._catch_up)

    def _catch_up(self) -> None:
        sqlite_file.checkpoint(self._connection)
        self._is_behind = False

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise StoreError("The conversation log has been closed: open it again.")

    def _done(self, file: sqlite3.Connection, work: Callable[..., T], *arguments: Any) -> T:
        if sqlite_file.identity(self._path) != self._identity:
            raise StoreReplaced(
                f"The conversation log {self._path} was removed or replaced while it was open: nothing is saved. "
                "Restart the process."
            )
        return work(file, *arguments)


@contextmanager
def writing(file: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a write transaction: all or nothing."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    finally:
        file.rollback()  # does nothing after the commit


@contextmanager
def reading(file: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a read transaction: all reads see the same snapshot despite concurrent writers."""
    file.execute("BEGIN")
    try:
        yield
    finally:
        file.rollback()


def _raise_store_error(path: Path, error: Exception) -> NoReturn:
    """Raise a StoreError with a readable message; errors about the value to be written pass unchanged."""
    if isinstance(error, UnicodeEncodeError | TransactionError):
        raise error
    if isinstance(error, _BAD_VALUES):
        log.error("store.damaged", path=str(path), error=repr(error))  # or a bug
    is_away = isinstance(error, sqlite3.Error) and sqlite_file.is_transient(error)
    raise (StoreUnavailable if is_away else StoreError)(sqlite_file.problem(path, error)) from error
