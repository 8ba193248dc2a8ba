"""Read pages in a small pool of worker processes; see `reading_process`."""

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

from orchestrator_interactive.kernel.tool_support import FairPool
from orchestrator_interactive.modules.tool_web import reading_process
from orchestrator_interactive.modules.tool_web.http_client import WebError, shown

if TYPE_CHECKING:
    from collections.abc import Hashable

    from orchestrator_interactive.modules.tool_web.download import Download
    from orchestrator_interactive.modules.tool_web.reading_process import Reading

TIME_LIMIT_S = 8.0
_BEGUN_WITHIN_S = 20.0
_MAX_PROCESSES = 2
# Maximum wait for a free process; each call before it needs at most 8 seconds.
_WAIT_S = 60.0
# How long a cancelled call waits for the end of its process.
_ENDED_WITHIN_S = 0.25

_ENV = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}


class _Process:
    """A worker process that handles one request at a time. It ends after a minute without one."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", reading_process.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_ENV,
            )
        self._replies = self._socket.makefile("rb")

    def ask(self, job: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Send a request and return its reply.

        Raises:
            TimeoutError: no reply arrived in time.
            ConnectionError: the process has ended.
        """
        self._socket.settimeout(_BEGUN_WITHIN_S)
        self._socket.sendall(json.dumps({**job, "size": len(body)}).encode() + b"\n" + body)
        deadline = time.monotonic() + _BEGUN_WITHIN_S
        while True:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            line = self._replies.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("the process has ended")
            reply: dict[str, Any] = json.loads(line)
            if "begun" not in reply:
                return reply
            deadline = time.monotonic() + TIME_LIMIT_S

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._replies.close()
        self._socket.close()


_POOL = FairPool("reading", _MAX_PROCESSES, 1)
_idle: list[_Process] = []


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


class _Call:
    """A request in progress. `kill` may be called from any thread at any time."""

    def __init__(self, job: dict[str, Any], body: bytes) -> None:
        self._job = job
        self._body = body
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._is_killed = False
        self.has_begun = False

    def run(self) -> dict[str, Any]:
        self.has_begun = True
        try:
            return self._ask(new=False)
        except ConnectionError:
            if self._is_killed:
                raise
            # It was idle for too long, or the page has crashed it: retry once with a new one.
            return self._ask(new=True)

    def _ask(self, *, new: bool) -> dict[str, Any]:
        process = None
        if not new:
            with suppress(IndexError):
                process = _idle.pop()
        process = process or _Process()
        with self._lock:
            self._process = process
            if self._is_killed:
                process.kill()
        try:
            reply = process.ask(self._job, self._body)
        except BaseException:
            with self._lock:
                self._process = None
            process.end()
            raise
        with self._lock:
            self._process = None
        _idle.append(process)  # if it was killed after its reply, its next call starts another
        return reply

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()


async def _result(key: Hashable, job: dict[str, Any], body: bytes, subject: str) -> dict[str, Any]:
    call = _Call(job, body)
    running = asyncio.ensure_future(_POOL.run(key, call.run, wait_s=_WAIT_S))
    try:
        reply = await asyncio.shield(running)
    except TimeoutError as e:
        reason = f"takes more than {TIME_LIMIT_S:g} seconds to read" if call.has_begun else "waits for too many others"
        raise WebError(f"{subject} {reason}. Try its source with raw=true, or another page.") from e
    except OSError as e:
        raise WebError(f"{subject} cannot be read: its parser failed. Try its source with raw=true.") from e
    except asyncio.CancelledError:
        call.kill()
        if not call.has_begun:
            running.cancel()
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait([running], timeout=_ENDED_WITHIN_S)
        raise
    if "error" in reply:
        raise WebError(f"{subject} is too large or too deeply nested to be read. Try its source with raw=true.")
    return reply


async def read(key: Hashable, page: Download, *, raw: bool) -> Reading:
    """Return the text of a page as Markdown; of other texts, and with `raw`, the text itself.

    Calls of the same `key` run one after the other.

    Raises:
        WebError: it cannot be read within the limits.
    """
    kind = "html" if page.is_html and not raw else "text"
    job = {"kind": kind, "url": str(page.url), "charset": page.charset, "agent": "", "is_cut": page.is_cut}
    reading: Any = await _result(key, job, page.body, shown(page.url))
    return reading  # type: ignore[no-any-return]


async def robots_allow(key: Hashable, text: str, url: str, agent: str) -> bool:
    """Return whether the rules of a robots.txt allow an address.

    Raises:
        WebError: it cannot be read within the limits.
    """
    job = {"kind": "robots", "url": url, "charset": "", "agent": agent, "is_cut": False}
    return bool((await _result(key, job, text.encode(), "The robots.txt of this host"))["allowed"])
