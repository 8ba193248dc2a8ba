"""An SQLite file that several processes may open, and the sentences about its errors.

Stores are sets of statements on a `Database`: a method that takes a connection becomes an async one by `@via(...)`.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import AsyncExitStack, closing, suppress
from functools import partial, wraps
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import structlog

from orchestrator_interactive.storage.errors import StoreError, StoreReplaced, StoreUnavailable, TransactionError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Prepare = Callable[[sqlite3.Connection], None]

log = structlog.get_logger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

# How long a write waits for another process's lock.
BUSY_TIMEOUT_S = 5.0
# "aslg": identifies the file as a conversation log.
APPLICATION_ID = 0x61736C67
VERSION = 1
# Number of writes between two checkpoints of SQLite's write-ahead log, and the size in bytes to which it shrinks then.
_CHECKPOINT_EVERY = 500
_WAL_SIZE = 16 * 2**20
# Errors of code that reads a value of an unexpected type.
_BAD_VALUES = (TypeError, ValueError, LookupError, AttributeError)
_TRANSIENT = ("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR")
_REMEDIES = {
    "SQLITE_BUSY": f"another process has held it locked for {BUSY_TIMEOUT_S:.0f} seconds. Try again, or end it",
    "SQLITE_READONLY": "it is read-only. Grant this user write access to the file and its folder",
    "SQLITE_PERM": "access is denied. Grant this user read and write access to the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that it is a file, and that this user may write it and its folder",
    "SQLITE_NOTADB": "it is not an SQLite file. Name another file",
    "SQLITE_CORRUPT": "it is damaged. Restore it from a backup, or save what is left with `sqlite3 FILE .recover`",
    "SQLITE_FULL": "its disk is full. Free space on it",
    "SQLITE_IOERR": "its disk cannot be read or written. Check whether it is full or broken",
}


class WorkerThread:
    """Runs work in one thread, in the order of submission; a cancelled caller does not stop its work.

    The round trip takes half as long as with an executor, and the thread does not delay the end of the process.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work` in the thread; return its result or raise its exception."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def resolve(resolve: Callable[[Any], None], value: Any) -> None:
            if not result.done():  # otherwise the caller was cancelled
                resolve(value)

        def do() -> None:
            try:
                outcome: tuple[Callable[[Any], None], Any] = result.set_result, work(*arguments)
            except BaseException as e:  # noqa: BLE001 - passed on to the caller
                outcome = result.set_exception, e
            with suppress(RuntimeError):  # the caller's loop is closed
                loop.call_soon_threadsafe(resolve, *outcome)

        self._queue.put(do)
        return await result

    def do(self, work: Callable[[], None]) -> None:
        """Submit work that must not raise, without waiting for it."""
        self._queue.put(work)

    def end(self) -> None:
        """End the thread after the submitted work."""
        self._queue.put(None)

    def _work(self) -> None:
        while (do := self._queue.get()) is not None:
            do()


class Database:
    """An open file.

    A small write runs on the event loop's thread: it copies into the system's cache and is much faster than a hop to
    another thread and back. Work that may wait for a lock or for the disk runs in a worker thread, one call at a time.

    All methods raise StoreError if the file cannot be used; StoreUnavailable if another process locks it, or if its
    disk is full or unavailable.
    """

    def __init__(
        self, path: Path, thread: WorkerThread, connection: sqlite3.Connection, writer: sqlite3.Connection
    ) -> None:
        self._path, self._name = path, str(path)
        self._thread = thread
        self._connection = connection
        self._writer = writer
        self._since_checkpoint, self._is_behind = 0, False
        # Writes handed to the thread, and those it has finished. Each counter is written by one thread.
        self._handed = self._finished = 0
        self._identity = _identity(self._name)
        self._is_open = True

    @classmethod
    async def open(cls, path: Path, name: str, prepare: Prepare) -> Self:
        """Open the file, which is created if it is missing. `prepare` creates missing tables; `name` names the thread.

        Raises:
            StoreError: it cannot be used; nothing was changed.
        """
        thread = WorkerThread(name)
        try:
            async with AsyncExitStack() as undo:
                undo.callback(thread.end)
                connection = await thread.run(open_database, path, prepare)
                undo.push_async_callback(thread.run, connection.close)
                database = cls(path, thread, connection, open_writer(path))
                undo.pop_all()
        except (sqlite3.Error, OSError, *_BAD_VALUES) as e:
            raise _store_error(path, e) from e
        return database

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do a small write in a transaction, on the loop's thread unless another process or an earlier write is at it.

        `work` gets a connection and must not await.
        """
        is_far_behind = self._is_behind and self._since_checkpoint >= _CHECKPOINT_EVERY
        if is_far_behind or self._handed > self._finished:  # the write must not overtake those in the thread
            return await self.write_in_thread(work)
        try:
            result = self._do(self._writer, work, is_write=True)
        except StoreUnavailable as e:
            if _name(e.__cause__).startswith("SQLITE_BUSY"):
                return await self.write_in_thread(work)
            raise
        self._since_checkpoint += 1
        if self._since_checkpoint >= _CHECKPOINT_EVERY and not self._is_behind:
            self._since_checkpoint, self._is_behind = 0, True
            self._thread.do(self._checkpoint)
        return result

    async def write_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do a write of any size in a transaction, in the thread."""
        self._refuse_closed()
        self._handed += 1
        return await self._thread.run(partial(self._do, is_write=True), self._connection, work)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do a small read, on the loop's thread if no write is queued."""
        is_busy = self._handed > self._finished
        return await self.read_in_thread(work) if is_busy else self._do(self._writer, work)

    async def read_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._refuse_closed()
        return await self._thread.run(self._do, self._connection, work)

    async def aclose(self) -> None:
        """Close the file after pending writes have finished."""
        if self._is_open:
            self._is_open = False
            self._writer.close()
            await self._thread.run(self._connection.close)
            self._thread.end()

    def _checkpoint(self) -> None:
        """Copy the write-ahead log into the file, so that its size stays bounded; do nothing if the file is in use.

        Writers wait during a checkpoint, because otherwise constant writes would prevent it. They then write over the
        log, which takes less time than to let it grow again.
        """
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(RESTART)")
        self._is_behind = False

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise StoreError("The conversation log has been closed: open it again.")

    def _do(self, file: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], *, is_write: bool = False) -> T:
        """Call `work` with the connection; convert errors, except those about the value to be written.

        A write is done as a whole or not at all.
        """
        if file is self._writer:
            self._refuse_closed()  # the thread's work was accepted before the file was closed
        try:
            if _identity(self._name) != self._identity:
                raise StoreReplaced(
                    f"The conversation log {self._path} was removed or replaced while it was open: nothing is saved. "
                    "Restart the process."
                )
            return _transaction(work, file) if is_write else work(file)
        except (UnicodeEncodeError, TransactionError):
            raise
        except (sqlite3.Error, *_BAD_VALUES) as e:
            raise _store_error(self._path, e) from e
        finally:
            if is_write and file is self._connection:
                self._finished += 1


class _OnDatabase(Protocol):
    database: Database


S = TypeVar("S", bound=_OnDatabase)


def via(
    run: Callable[[Database, Callable[[sqlite3.Connection], Any]], Coroutine[Any, Any, Any]],
) -> Callable[
    [Callable[Concatenate[S, sqlite3.Connection, P], T]], Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
]:
    """Make a store's method that takes a connection an async one, run by a method of `Database`."""

    def decorate(
        work: Callable[Concatenate[S, sqlite3.Connection, P], T],
    ) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
        @wraps(work)
        async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result: T = await run(self.database, lambda file: work(self, file, *args, **kwargs))
            return result

        return method

    return decorate


def open_database(path: Path, prepare: Prepare) -> sqlite3.Connection:
    """Open a connection for the calling thread; the file is created if needed.

    Raises:
        StoreError: the file belongs to another application or a newer version; nothing was changed.
        sqlite3.Error, OSError: it cannot be used; `problem` describes the error.
    """
    _make(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.text_factory = _text
        connection.execute("BEGIN")  # another process may create it between two reads
        _version(connection, path)
        connection.execute("COMMIT")
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE}")
        connection.execute("BEGIN IMMEDIATE")
        if not _version(connection, path):  # another process may have created it
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        prepare(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log; SQLite itself does not wait for another process that does the same."""
    end_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end_s:
                raise
            time.sleep(0.01)
        else:
            return


def open_writer(path: Path) -> sqlite3.Connection:
    """Open a second connection that never blocks: it waits for no lock and runs no checkpoint."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    connection.text_factory = _text
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_SIZE}")
    return connection


def refuse_unprepared(path: Path, is_prepared: Callable[[sqlite3.Connection], bool]) -> None:
    """Raise StoreError if opening the file would create its tables."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            ((version,),) = file.execute("PRAGMA user_version")
            if version >= VERSION and is_prepared(file):
                return
    except (sqlite3.Error, TypeError):
        return  # opening it reports the error
    raise StoreError(f"{path} has not been used by a service yet. Start the service once to prepare it.")


def sqlite_path(url: str) -> Path:
    """Return the path in an SQLite URL.

    Raises:
        StoreError: the URL has no valid path.
    """
    rest = url.removeprefix("sqlite:")
    if rest.startswith("//") and not rest.startswith("///"):
        raise StoreError("An SQLite URL has one slash or three: `sqlite:logs.db`, or `sqlite:///var/lib/logs.db`.")
    name = rest.removeprefix("//")
    if not name or "\0" in name:
        raise StoreError("An SQLite URL names a file: `sqlite:logs.db`, or `sqlite:///var/lib/logs.db`.")
    return Path(name).expanduser().absolute()


def problem(path: Path, error: Exception) -> str:
    """Describe why the file cannot be used, and the remedy."""
    match error:
        case PermissionError():
            name = "SQLITE_PERM"
        case OSError():
            name = "SQLITE_CANTOPEN"
        case sqlite3.Error():
            name = _name(error)
        case _:
            name = "SQLITE_CORRUPT"
    remedy = next((text for code, text in _REMEDIES.items() if name.startswith(code)), None)
    return f"The conversation log {path} cannot be used: {remedy or error}."


def _transaction(work: Callable[[sqlite3.Connection], T], file: sqlite3.Connection) -> T:
    file.execute("BEGIN IMMEDIATE")
    try:
        result = work(file)
        file.execute("COMMIT")
    except BaseException:
        file.rollback()
        raise
    return result


def _store_error(path: Path, error: Exception) -> StoreError:
    if isinstance(error, _BAD_VALUES):
        log.error("store.damaged", path=str(path), error=repr(error))  # or a bug
    return (StoreUnavailable if _name(error).startswith(_TRANSIENT) else StoreError)(problem(path, error))


def _name(error: BaseException | None) -> str:
    # Errors that Python's own module raises have no name.
    return str(getattr(error, "sqlite_errorname", ""))


def _identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file; `None` if it does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116 - takes half as long as Path.stat, and runs before every write
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make(path: Path) -> None:
    """Create the file if it is missing.

    Raises:
        OSError: this user may not read and write it. Without this check SQLite would create side files of this user,
            which the file's owner could not write.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # conversations are private to this user
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of the file; 0 if it is empty.

    Raises:
        StoreError: the file belongs to another application or a newer version.
    """
    ((application,),) = connection.execute("PRAGMA application_id")
    version: int
    ((version,),) = connection.execute("PRAGMA user_version")
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
    if application == version == tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise StoreError(f"{path} belongs to another application: name another file for the conversation log.")
    if version > VERSION:
        raise StoreError(
            f"The conversation log {path} has version {version}; this installation knows version {VERSION}: "
            "update it, or name another file."
        )
    return version


def _text(raw: bytes) -> str | None:
    """Decode a text of the file; `None` if it is damaged."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
