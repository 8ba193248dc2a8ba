"""List and search the files under a folder in a separate process.

A regular expression may run without end, and a process can be killed. In a thread, this work would also slow down the
event loop, because both share the interpreter lock. The program imports only the standard library to start quickly.

`argv[1]` is the descriptor of a Unix socket. Each request is a line of JSON with the descriptor of a folder or file.
Everything is opened relative to that descriptor, without following links. The replies are lines of JSON:
`{"begun": true}`, any number of `{"report": text}`, then one `Found`, or `{"error": reason}` for an invalid expression.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import signal
import socket
import stat
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would block until a writer opens it.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Limits of a path in the workspace.
MAX_FOLDERS = 20
MAX_PATH_BYTES = 1_000
MAX_NAME_BYTES = 255
# Limits of a search for lines.
MAX_FILE_BYTES = 2_000_000  # larger files are data rather than text
MAX_TOTAL_CHARACTERS = 20_000_000

_NOT_LOOKED_INTO = {"__pycache__", "node_modules"}
_MAX_LINE = 2_000  # searched characters of a line
_FILES_A_REPORT = 500
_MAX_REQUEST_BYTES = 65_536
# Seconds after the time limit; the alarm ends the process if the parent has died.
_ENDED_AFTER_S = 2
_NICENESS = 5


class Job(TypedDict):
    """A request. `path` is the path of the folder or file relative to the workspace; `starts`: its parts to scan.

    If `query` is None, it lists the files that match `pattern`; otherwise it finds lines.
    """

    path: list[str]
    starts: list[list[str]]
    pattern: str | None
    query: str | None
    regex: bool
    ignore_case: bool
    limit: int
    time_limit_s: float


class Found(TypedDict):
    """The result of a request.

    `items` are `[path, size in bytes]` of files, or `[path, line number, text]` of lines; `too_deep` is the number of
    folders and files left out because their path is too long, `too_large` that of files whose lines were not searched;
    `is_full` is True if the size limit was reached, `is_late` if the time limit was.
    """

    items: list[list[Any]]
    too_deep: int
    too_large: int
    is_full: bool
    is_late: bool


class _Entry(NamedTuple):
    folder: int
    name: str
    path: str
    size_bytes: int


class _Scan:
    """The execution of one request."""

    def __init__(self, job: Job, top: int, report: Callable[[str], None]) -> None:
        self._job = job
        self._top = top
        self._report = report
        self._deadline = time.monotonic() + job["time_limit_s"]
        self._too_deep = self._too_large = 0
        self._is_full = self._is_past_deadline = False

    def found(self) -> Found:
        items: list[list[Any]] = []
        for item in self._files() if self._job["query"] is None else self._lines():
            items.append(item)
            if len(items) == self._job["limit"]:
                break
        return {
            "items": items,
            "too_deep": self._too_deep,
            "too_large": self._too_large,
            "is_full": self._is_full,
            "is_late": self._is_past_deadline,
        }

    def _files(self) -> Iterator[list[Any]]:
        for entry in self._entries():
            if _matches(entry.path, self._job["pattern"]):
                yield [entry.path, entry.size_bytes]

    def _lines(self) -> Iterator[list[Any]]:
        holds = _test(self._job)
        room = MAX_TOTAL_CHARACTERS
        for searched, entry in enumerate(self._entries()):
            if searched and not searched % _FILES_A_REPORT:
                self._report(f"{searched:,} files searched")
            if entry.size_bytes > MAX_FILE_BYTES:
                self._too_large += 1
                continue
            text = _text_of(entry)
            room -= len(text)
            if room < 0:
                self._is_full = True
                return
            for number, line in enumerate(text.split("\n"), 1):
                if self._is_late():
                    return
                if holds(line[:_MAX_LINE].rstrip("\r")):
                    yield [entry.path, number, line[:_MAX_LINE].rstrip("\r")]

    def _is_late(self) -> bool:
        self._is_past_deadline = self._is_past_deadline or time.monotonic() > self._deadline
        return self._is_past_deadline

    def _entries(self) -> Iterator[_Entry]:
        """Yield regular files in order, without hidden files and links."""
        begin = len(self._job["path"])
        waiting = [tuple(start) for start in reversed(self._job["starts"])]
        while waiting and not self._is_late():
            at = waiting.pop()
            with suppress(OSError):  # removed since it was listed, or not readable
                place = _opened(self._top, at[begin:])
                try:
                    status = os.fstat(place)
                    if stat.S_ISREG(status.st_mode):
                        yield _Entry(place, "", "/".join(at), status.st_size)
                        continue
                    folders, names = _content(place)
                    waiting += [(*at, name) for name in reversed(folders) if self._is_in_reach((*at, name, ""))]
                    yield from self._entries_of(place, at, names)
                finally:
                    os.close(place)

    def _entries_of(self, folder: int, at: tuple[str, ...], names: list[str]) -> Iterator[_Entry]:
        for name in names:
            if self._is_late():
                return
            if self._is_in_reach((*at, name)):
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield _Entry(folder, name, "/".join((*at, name)), status.st_size)

    def _is_in_reach(self, parts: tuple[str, ...]) -> bool:
        is_in_reach = is_short(parts)
        self._too_deep += not is_in_reach
        return is_in_reach


def is_short(parts: tuple[str, ...] | list[str]) -> bool:
    """Return whether the length of a path (folders and a name) is within the limits."""
    sizes_bytes = [len(os.fsencode(part)) for part in parts]
    return (
        len(parts) <= MAX_FOLDERS + 1
        and max(sizes_bytes, default=0) <= MAX_NAME_BYTES
        and sum(sizes_bytes) + len(parts) - 1 <= MAX_PATH_BYTES
    )


def _content(folder: int) -> tuple[list[str], list[str]]:
    """Return the sorted names of folders and of other entries."""
    folders: list[str] = []
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.name not in _NOT_LOOKED_INTO:
                (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    return sorted(folders), sorted(names)


def _opened(top: int, parts: tuple[str, ...]) -> int:
    place = os.dup(top)
    for part in parts:
        try:
            inner = os.open(part, FILE, dir_fd=place)
        finally:
            os.close(place)
        place = inner
    return place


def _matches(path: str, pattern: str | None) -> bool:
    if not pattern:
        return True
    pattern = pattern.removeprefix("**/")
    return fnmatch.fnmatch(path.rpartition("/")[2], pattern) or fnmatch.fnmatch(path, pattern)


def _test(job: Job) -> Callable[[str], object]:
    """Return a predicate for matching lines."""
    query = job["query"] or ""
    if job["regex"]:
        return re.compile(query, re.IGNORECASE if job["ignore_case"] else 0).search
    if job["ignore_case"]:
        query = query.casefold()
        return lambda line: query in line.casefold()
    return lambda line: query in line


def _text_of(entry: _Entry) -> str:
    data = b""
    with suppress(OSError):  # removed or not readable
        fd = os.open(entry.name, FILE, dir_fd=entry.folder) if entry.name else os.dup(entry.folder)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:  # another name may be outside of the workspace
                data = file.read(MAX_FILE_BYTES)
    return "" if b"\0" in data else data.decode("utf-8", "replace")


def _received(parent: socket.socket) -> tuple[Job, int] | None:
    """Receive the next request; None if the parent has closed the socket."""
    data, fds, _, _ = socket.recv_fds(parent, _MAX_REQUEST_BYTES, 1)
    while data and not data.endswith(b"\n"):
        more = parent.recv(_MAX_REQUEST_BYTES)
        if not more:
            return None
        data += more
    return (json.loads(data), fds[0]) if fds else None


def main() -> None:
    os.nice(_NICENESS)
    with socket.socket(fileno=int(sys.argv[1])) as parent:

        def send(reply: Any) -> None:
            parent.sendall(json.dumps(reply).encode() + b"\n")

        while (request := _received(parent)) is not None:
            job, top = request
            signal.alarm(int(job["time_limit_s"]) + _ENDED_AFTER_S)
            send({"begun": True})
            try:
                send(_Scan(job, top, lambda text: send({"report": text})).found())
            except (re.error, RecursionError, OverflowError) as e:
                send({"error": str(e)})
            finally:
                os.close(top)
            signal.alarm(0)


if __name__ == "__main__":
    main()
