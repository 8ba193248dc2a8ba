"""An SQLite file that is open: small writes are made at once, all else in a thread of its own."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

import structlog

from orchestrator_interactive.storage import sqlite_file
from orchestrator_interactive.storage.errors import StoreAway, StoreError, StoreGone, TransactionError
from orchestrator_interactive.storage.thread import OneThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Of writes, after which what was written is brought from the log of SQLite into the file.
_CHECKPOINT_EVERY = 500
# How work fails on a value of another type than was written.
_UNFIT = (TypeError, ValueError, LookupError, AttributeError)


class Database:
    """A file that several processes may have open.

    A small write is made at once, on the loop's own thread: it is a copy into the system's cache, and takes a fraction
    of the way to another thread and back. Whatever may have to wait (for somebody else's lock, or for the disk) is done
    in a thread of its own, one after the other.

    All methods raise StoreError where the file cannot be used; it is StoreAway where another process has it locked, or
    its disk is full or away.
    """

    def __init__(
        self, path: Path, thread: OneThread, connection: sqlite3.Connection, writer: sqlite3.Connection
    ) -> None:
        self._path = path
        self._thread = thread
        self._connection = connection
        self._writer = writer
        self._since_checkpoint, self._is_behind = 0, False
        # Of small writes: how many were handed to the thread, and how many it has done. Each is counted by one thread.
        self._handed = self._done_there = 0
        self._identity = sqlite_file.identity(path)
        self._is_open = True

    @classmethod
    async def open(cls, path: Path, name: str, prepare: Callable[[sqlite3.Connection], None] | None = None) -> Self:
        """The file, which is made where there is none; `name` is the thread's. `prepare` may add what it needs to it.

        Raises:
            StoreError: it cannot be used; nothing was changed.
        """
        thread, connection = OneThread(name), None
        try:
            connection = await thread.run(sqlite_file.opened, path, prepare)
            return cls(path, thread, connection, sqlite_file.writer(path))
        except BaseException as e:
            if connection is not None:
                await thread.run(connection.close)
            thread.end()
            if isinstance(e, (sqlite3.Error, OSError, *_UNFIT)):
                _fail(path, e)
            raise

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` gives for a connection and these arguments, in the thread."""
        self._refuse_closed()
        try:
            return await self._thread.run(self._done, self._connection, work, *arguments)
        except (sqlite3.Error, *_UNFIT) as e:
            _fail(self._path, e)

    async def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work`, which writes little, gives for a connection and these arguments: at once where that is free."""
        is_far_behind = self._is_behind and self._since_checkpoint >= _CHECKPOINT_EVERY
        if not is_far_behind and not self._is_busy:  # nothing overtakes what was asked for before it
            self._refuse_closed()
            try:
                given = self._done(self._writer, work, *arguments)
            except (sqlite3.Error, *_UNFIT) as e:
                if not isinstance(e, sqlite3.Error) or not sqlite_file.is_busy(e):
                    _fail(self._path, e)
            else:
                self._count_write()
                return given
        self._handed += 1
        return await self.run(self._counted, work, *arguments)

    async def read(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work`, which reads little, gives for a connection and these arguments: at once where that is free."""
        if self._is_busy:
            return await self.run(work, *arguments)
        self._refuse_closed()
        try:
            return self._done(self._writer, work, *arguments)
        except (sqlite3.Error, *_UNFIT) as e:
            _fail(self._path, e)

    async def aclose(self) -> None:
        """Close the file once all that is on its way is written."""
        if self._is_open:
            self._is_open = False
            self._writer.close()
            await self._thread.run(self._connection.close)
            self._thread.end()

    @property
    def _is_busy(self) -> bool:
        """Whether the thread has small writes to do."""
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
            raise StoreGone(
                f"The conversation log {self._path} was removed or replaced while it was open: nothing is kept any "
                "more. Start again."
            )
        return work(file, *arguments)


@contextmanager
def writing(file: sqlite3.Connection) -> Iterator[None]:
    """A transaction: all that is done in it, or nothing."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        file.rollback()
        raise


@contextmanager
def reading(file: sqlite3.Connection) -> Iterator[None]:
    """A transaction for several reads: they see the file as it was at the first of them, whoever writes meanwhile."""
    file.execute("BEGIN")
    try:
        yield
    finally:
        file.rollback()


def _fail(path: Path, error: Exception) -> NoReturn:
    """Raise the error as a sentence, or as it is where it is about the value to be written."""
    if isinstance(error, UnicodeEncodeError | TransactionError):
        raise error
    if isinstance(error, _UNFIT):
        log.error("store.damaged", path=str(path), error=repr(error))  # or an error in this program
    is_away = isinstance(error, sqlite3.Error) and sqlite_file.passes(error)
    raise (StoreAway if is_away else StoreError)(sqlite_file.problem(path, error)) from error
