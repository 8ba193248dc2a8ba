"""Worker processes for work that would block the event loop and that may have to be killed."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.tool_support import FairPool, report_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from contextlib import AbstractContextManager

    # Yields the content of a request and its file descriptors.
    Request = Callable[[], AbstractContextManager[tuple[bytes, Sequence[int]]]]

# Maximum wait for a free process.
WAIT_S = 60.0
_BEGUN_WITHIN_S = 20.0
# How long a cancelled call waits for the end of its process.
_ENDED_WITHIN_S = 0.25

_ENV = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}


class PoolBusyError(Exception):
    """No process was free in time."""


class _Process:
    """A worker process that handles one request at a time."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self._name = name
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *arguments, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_ENV,
            )
        self._replies = self._socket.makefile("rb")

    def ask(self, request: bytes, fds: Sequence[int], time_limit_s: float) -> dict[str, Any]:
        """Send a request and return its reply.

        Raises:
            TimeoutError: no reply arrived in time.
            ConnectionError: the process has ended.
        """
        self._socket.settimeout(_BEGUN_WITHIN_S)
        sent = socket.send_fds(self._socket, [request], fds) if fds else 0
        self._socket.sendall(memoryview(request)[sent:])
        deadline = time.monotonic() + _BEGUN_WITHIN_S
        while True:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            line = self._replies.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError(f"the {self._name} process has ended")
            reply: dict[str, Any] = json.loads(line)
            match reply:
                case {"begun": True}:
                    deadline = time.monotonic() + time_limit_s
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


class _Call:
    """A request in progress. `kill` may be called from any thread at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self.is_killed = False
        self.has_begun = False

    def use(self, process: _Process | None) -> None:
        with self._lock:
            self._process = process
        if self.is_killed:
            self.kill()

    def kill(self) -> None:
        with self._lock:
            self.is_killed = True
            if self._process is not None:
                self._process.kill()


class WorkerPool:
    """Pass requests to a bounded number of worker processes.

    The last argument of a process is the descriptor of a Unix socket. Its replies to a request are lines of JSON:
    `{"begun": true}`, any number of `{"report": text}` with the progress, then the result, any other object.

    Args:
        arguments: options of the interpreter, and the file of the program.
        keeps_idle: whether processes without a request end by themselves, rather than as soon as no request waits.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], max_processes: int, max_per_key: int, *, keeps_idle: bool
    ) -> None:
        self._name = name
        self._arguments = arguments
        self._idle: list[_Process] = []
        self._threads = FairPool(name, max_processes, max_per_key, (lambda: None) if keeps_idle else self._end_idle)
        atexit.register(self._end_idle, max_processes)

    async def ask(self, key: Hashable, request: Request, time_limit_s: float) -> dict[str, Any]:
        """Return the result of a request, which is made in a thread. Cancelling the caller kills the process.

        A request whose process ends is repeated once.

        Raises:
            PoolBusyError: no process was free for 60 seconds.
            TimeoutError: there is no result `time_limit_s` seconds after the request has begun.
            OSError: the process ended again, or cannot be started.
        """
        call = _Call()
        asking = asyncio.ensure_future(self._threads.run(key, self._run, call, request, time_limit_s, wait_s=WAIT_S))
        try:
            return await asyncio.shield(asking)
        except TimeoutError as e:
            if call.has_begun:
                raise
            raise PoolBusyError from e
        except asyncio.CancelledError:
            call.kill()
            if not call.has_begun:
                asking.cancel()
            asking.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait([asking], timeout=_ENDED_WITHIN_S)
            raise

    def _run(self, call: _Call, request: Request, time_limit_s: float) -> dict[str, Any]:
        call.has_begun = True
        with request() as (content, fds):
            process = None
            with suppress(IndexError):
                process = self._idle.pop()
            try:
                return self._ask(call, process, content, fds, time_limit_s)
            except ConnectionError:
                if call.is_killed:
                    raise
                # It was idle for too long, was killed from outside, or has crashed: retry once with a new one.
                return self._ask(call, None, content, fds, time_limit_s)

    def _ask(self, call: _Call, process: _Process | None, *request: Any) -> dict[str, Any]:
        process = process or _Process(self._name, self._arguments)
        call.use(process)
        try:
            reply = process.ask(*request)
        except BaseException:
            call.use(None)
            process.end()
            raise
        call.use(None)
        self._idle.append(process)  # if it was killed after its reply, its next call starts another
        return reply

    def _end_idle(self, most: int = 1) -> None:
        for _ in range(most):
            with suppress(IndexError):
                self._idle.pop().end()
