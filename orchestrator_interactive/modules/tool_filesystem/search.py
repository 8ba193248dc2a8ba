"""List and search a workspace in a bounded pool of worker processes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import report_progress
from orchestrator_interactive.kernel.tool_support import FairPool
from orchestrator_interactive.modules.tool_filesystem import search_process
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceError

if TYPE_CHECKING:
    from orchestrator_interactive.modules.tool_filesystem.search_process import Found, Job
    from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceFolder

TIME_LIMIT_S = 3.0
# Additional time of a process: to finish the current file at the time limit, and to start on a busy machine.
_SPARE_S = 0.5
_BEGUN_WITHIN_S = 20.0
_MAX_PROCESSES = 4
_MAX_OF_A_WORKSPACE = 2
# Maximum wait for a free process; other calls take up to 3 seconds each.
_WAIT_S = 60.0
# How long a cancelled call waits for the end of its process.
_ENDED_WITHIN_S = 0.25

_ENV = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
_BUSY = f"Nothing was searched: all search processes were busy for {_WAIT_S:g} s. Try again later."
_TOO_LONG = "This takes too long. Use a simpler expression, search without regex, or narrow it down to a folder."


class _Process:
    """A worker process that handles one request at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", search_process.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_ENV,
            )
        self._replies = self._socket.makefile("rb")

    def ask(self, job: Job, fd: int) -> dict[str, Any]:
        """Send a request and return its reply.

        Raises:
            TimeoutError: no reply arrived in time.
            ConnectionError: the process has ended.
        """
        deadline = time.monotonic() + _BEGUN_WITHIN_S
        self._socket.settimeout(_BEGUN_WITHIN_S)
        request = json.dumps(job).encode() + b"\n"
        sent = socket.send_fds(self._socket, [request], [fd])
        self._socket.sendall(request[sent:])
        while True:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            line = self._replies.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("the search process has ended")
            reply: dict[str, Any] = json.loads(line)
            match reply:
                case {"begun": True}:
                    deadline = time.monotonic() + job["time_limit_s"] + _SPARE_S
                case {"report": text}:
                    report_progress(text)
                case _:
                    return reply

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._replies.close()
        self._socket.close()


# Each pool thread owns one process.
_here = threading.local()


def _end_process() -> None:
    process: _Process | None = _here.__dict__.pop("process", None)
    if process is not None:
        process.end()


_POOL = FairPool("search", _MAX_PROCESSES, _MAX_OF_A_WORKSPACE, on_thread_end=_end_process)


class _Search:
    """A request in progress. `kill` may be called from any thread at any time."""

    def __init__(self, workspace: WorkspaceFolder, path: str, job: dict[str, Any]) -> None:
        self._workspace = workspace
        self._path = path
        self._job = job
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._is_killed = False
        self.has_begun = False

    def run(self) -> Found:
        self.has_begun = True
        try:
            with self._workspace.place(self._path) as (parts, starts, fd):
                job: Any = {"path": parts, "starts": starts, "time_limit_s": TIME_LIMIT_S, **self._job}
                try:
                    reply: Any = self._ask(job, fd)
                except ConnectionError:
                    if self._is_killed:
                        raise
                    # The process was killed from outside: retry once with a new one.
                    reply = self._ask(job, fd)
        except TimeoutError as e:
            raise WorkspaceError(_TOO_LONG) from e
        except OSError as e:
            raise WorkspaceError(f"The files cannot be read now: {e.strerror or e}. Try again later.") from e
        if reason := reply.get("error"):
            query = self._job["query"]
            raise WorkspaceError(
                f"'{query}' is not a regular expression: {reason}. Correct it, or search without regex."
            )
        found: Found = reply
        return found

    def _ask(self, job: Job, fd: int) -> dict[str, Any]:
        try:
            if not hasattr(_here, "process"):
                _here.process = _Process()
            with self._lock:
                if self._is_killed:
                    raise ConnectionError("the call was cancelled")
                self._process = _here.process
            return self._process.ask(job, fd)
        except OSError:
            _end_process()
            raise
        finally:
            with self._lock:
                self._process = None
            if self._is_killed:  # possibly after the reply
                _end_process()

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()


async def scan(workspace: WorkspaceFolder, path: str, **job: Any) -> Found:
    """Scan the files at or under a path in a worker process; see `search_process.Job` for the other arguments.

    Raises:
        WorkspaceError: no such path, a malformed expression, or too little time.
    """
    search = _Search(workspace, path, job)
    scanning = asyncio.ensure_future(_POOL.run(workspace.root, search.run, wait_s=_WAIT_S))
    try:
        return await asyncio.shield(scanning)
    except TimeoutError as e:
        raise WorkspaceError(_BUSY) from e
    except asyncio.CancelledError:
        search.kill()
        if not search.has_begun:
            scanning.cancel()
        scanning.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait([scanning], timeout=_ENDED_WITHIN_S)
        raise
