"""The audit log: JSON lines, each chained to the one before it by a hash. It never contains the text of a message."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any

import structlog

from connector.observer import Observer
from orchestrator_interactive.storage.sqlite import WorkerThread
from service.config.config_errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from connector.observer import LeaseMove, RunReport
    from connector.protocols import End, InboxEntry, PersonAnswer, PersonRequest

log = structlog.get_logger(__name__)

_FIRST = "0" * 64
_KEYS = {"seq", "time", "kind", "fields", "prev", "hash"}
_START = b'{"seq": '
_NO_ENTRY = "its last line is not an entry of an audit log"
# Bytes that are read from the end of the file for its last line.
_TAIL = 1024 * 1024


class AuditLog:
    """Appends entries; each is on the disk before the next one is written.

    Every append locks the file, so that processes of one machine may share it. An entry that cannot be written is
    reported, kept, and written before the next one: the service continues. If the file was moved or removed, a new one
    begins with the checkpoint of the former one.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, which is created if it is missing.

        Raises:
            ConfigError: it cannot be written, or its last line is neither an entry nor the beginning of one.
        """
        self._path = path
        self._unwritten: list[dict[str, Any]] = []
        self._thread = WorkerThread("audit")
        try:
            self._file = self._open()
            self._append([])
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else _NO_ENTRY
            raise ConfigError(f"audit: {path} cannot be used: {reason}. Name another file, or move it away.") from e

    def record(self, kind: str, **fields: Any) -> None:
        """Append an entry in the background."""
        entry = _new(kind, **fields)
        self._thread.do(lambda: self._write(entry))

    async def aclose(self) -> None:
        """Close the file once all entries are written."""
        await self._thread.run(lambda: os.close(self._file))
        self._thread.end()

    def _write(self, entry: dict[str, Any]) -> None:
        self._unwritten.append(entry)
        try:
            self._follow()
            self._append(self._unwritten)
        except (OSError, ValueError) as e:
            log.error("audit.not_written", path=str(self._path), entries=len(self._unwritten), problem=str(e))  # noqa: TRY400 - the message gives the reason
        else:
            self._unwritten = []

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _follow(self) -> None:
        """Open the file anew if another one, or none, has its name.

        Raises:
            OSError, ValueError: as in `_append`.
        """
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._file)):
                return
        last, _ = _last(self._file)
        former, self._file = self._file, self._open()
        os.close(former)
        log.warning("audit.file_changed", path=str(self._path), previous=_checkpoint(last))
        self._unwritten.insert(0, _new("audit.continued", previous=_checkpoint(last)))

    def _append(self, entries: Iterable[dict[str, Any]]) -> None:
        """Append all entries or none.

        Raises:
            OSError: the file cannot be written.
            ValueError: its last line is no entry.
        """
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            last, torn = _last(self._file)
            size = os.fstat(self._file).st_size - torn
            if torn:  # a process was killed while it wrote
                log.warning("audit.repaired", path=str(self._path), dropped_bytes=torn)
                entries = chain([_new("audit.repaired", dropped_bytes=torn)], entries)
            lines = b""
            for entry in entries:
                last = {"seq": last["seq"] + 1, **entry, "prev": last["hash"]}
                last["hash"] = _hash(last)
                lines += f"{json.dumps(last)}\n".encode()
            if lines:
                os.ftruncate(self._file, size)
                _write_all(self._file, lines, size)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


@asynccontextmanager
async def audit_log(path: Path | None) -> AsyncIterator[Callable[..., None]]:
    """Open the audit log of a configuration, if it has one; yield its `record`, or a function that does nothing.

    Raises:
        ConfigError: the file cannot be used.
    """
    if path is None:
        yield lambda _kind, **_fields: None
        return
    audit = AuditLog(path)
    try:
        yield audit.record
    finally:
        await audit.aclose()


class AuditObserver(Observer):
    """Records reports of the connector, and passes them on; to record another kind of report, add its method here."""

    def __init__(self, record: Callable[..., None], then: Observer) -> None:
        self._record = record
        self._then = then

    def stopped(self, door: str, user: str, conversation_id: str, run_id: str | None) -> None:
        self._record("run.stop", user=user, door=door, conversation=conversation_id, run=run_id)
        self._then.stopped(door, user, conversation_id, run_id)

    def consented(self, by: str, user: str, conversation_id: str, run_id: str, *, allows: bool) -> None:
        self._record("run.consent", by=by, user=user, allows=allows, conversation=conversation_id, run=run_id)
        self._then.consented(by, user, conversation_id, run_id, allows=allows)

    def answered(self, request: PersonRequest, answer: PersonAnswer, conversation_id: str, run_id: str) -> None:
        self._record(
            "request.answered",
            about=request.id,
            digest=request.digest,
            # A question and its options are texts of a conversation.
            title=request.title if request.is_approval else "a question",
            answer=answer.kind,
            chosen=[request.options[place] if request.is_approval else place for place in answer.chosen],
            by=list(answer.by),
            always=answer.always,
            conversation=conversation_id,
            run=run_id,
        )
        self._then.answered(request, answer, conversation_id, run_id)

    def refused(self, user: str, channel: str, why: str) -> None:
        self._record("access.refused", user=user, channel=channel, why=why)
        self._then.refused(user, channel, why)

    def run(
        self, run_id: str, conversation_id: str, instance: str, message_id: str
    ) -> AbstractContextManager[RunReport]:
        return self._then.run(run_id, conversation_id, instance, message_id)

    def called(self, method: str, result: str) -> None:
        self._then.called(method, result)

    def admitted(self, conversation_id: str, entry: InboxEntry) -> None:
        self._then.admitted(conversation_id, entry)

    def left_inbox(self, ends: Collection[End]) -> None:
        self._then.left_inbox(ends)

    def lease(self, move: LeaseMove) -> None:
        self._then.lease(move)


@dataclass(frozen=True, slots=True)
class Chain:
    """A verified file: its number of entries, each problem as a sentence, and the checkpoint of its last entry."""

    entries: int
    problems: tuple[str, ...]
    checkpoint: str
    is_torn: bool = False


def _new(kind: str, **fields: Any) -> dict[str, Any]:
    """Return an entry of now, without its place in the chain."""
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "kind": kind, "fields": fields}


def _last(file: int) -> tuple[dict[str, Any], int]:
    """Return the last entry of a file, and the bytes after it: the beginning of an entry.

    Raises:
        OSError: the file cannot be read.
        ValueError: its last line is no entry.
    """
    size = os.fstat(file).st_size
    whole, newline, torn = os.pread(file, _TAIL, max(size - _TAIL, 0)).rpartition(b"\n")
    if torn[: len(_START)] != _START[: len(torn)]:
        raise ValueError(_NO_ENTRY)
    has_entry = newline or size > _TAIL
    return _entry(whole.rpartition(b"\n")[2]) if has_entry else {"seq": 0, "hash": _FIRST}, len(torn)


def _checkpoint(entry: dict[str, Any]) -> str:
    return f"{entry['seq']}:{entry['hash']}"


def _entry(line: bytes) -> dict[str, Any]:
    """Parse an entry, which has exactly the form in which it was written. Raises ValueError."""
    try:
        entry = json.loads(line)
    except RecursionError as e:
        raise ValueError(_NO_ENTRY) from e
    if isinstance(entry, dict) and entry.keys() == _KEYS and json.dumps(entry).encode() == line.rstrip(b"\n"):
        match entry:
            case {"seq": int(), "hash": str()}:
                return entry
    raise ValueError(_NO_ENTRY)


def verify(path: Path, checkpoint: str | None = None) -> Chain:
    """Check that each entry is unchanged and follows the one before it, and that the file contains a checkpoint.

    A checkpoint is `SEQ:HASH` of an entry. Without one that is kept elsewhere, entries that were removed at the end,
    or a file that was written anew, are not detected.

    Raises:
        OSError: the file cannot be read.
    """
    problems, seq, before, count, is_torn = [], 0, _FIRST, 0, False
    is_found = checkpoint in (None, f"0:{_FIRST}")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                is_torn = True
                break
            count += 1
            try:
                entry = _entry(line)
            except ValueError:
                problems.append(f"line {number} is not an entry.")
                seq += 1
                continue
            if entry["hash"] != _hash(entry):
                problems.append(f"line {number} was edited: its hash does not match.")
            if (entry["seq"], entry["prev"]) != (seq + 1, before):
                problems.append(
                    f"line {number} does not follow the line before it: lines were removed, added or moved."
                )
            seq, before = entry["seq"], entry["hash"]
            is_found |= checkpoint == f"{seq}:{before}"
    if not is_found:
        problems.append(f"after line {count}: the checkpoint {checkpoint} is not in the file; entries were removed.")
    return Chain(count, tuple(problems), f"{seq}:{before}", is_torn)


def _hash(entry: dict[str, Any]) -> str:
    covered = {name: value for name, value in entry.items() if name != "hash"}
    return sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _write_all(file: int, lines: bytes, size: int) -> None:
    """Write to the disk; if that fails, leave the file as it was.

    Raises:
        OSError: it failed.
    """
    try:
        written = os.write(file, lines)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise
    if written < len(lines):
        os.ftruncate(file, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
