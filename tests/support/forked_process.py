"""The client of `fork_server.py`: forked processes of `amplifier-slack`."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Self


class ForkedProcess:
    """A forked process, with the part of `asyncio.subprocess.Process` that the tests use."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, end: asyncio.Task[int]) -> None:
        self.pid = pid
        self.stdout = stdout
        self._end = end

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str]) -> Self:
        """Run this command; `stdout` has its output."""
        output, into_output = os.pipe()
        report, into_report = socket.socketpair()
        message = json.dumps({"command": list(command), "env": dict(env)}).encode()
        socket.send_fds(_fork_server(), [message], [into_output, into_report.fileno()])
        os.close(into_output)
        into_report.close()
        stdout = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(output, "rb")
        )
        reports, writer = await asyncio.open_connection(sock=report)
        pid = int(await reports.readline())
        return cls(pid, stdout, asyncio.create_task(_ended(reports, writer)))

    @property
    def returncode(self) -> int | None:
        return self._end.result() if self._end.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    async def communicate(self) -> tuple[bytes, None]:
        """Read all output, and wait for the end."""
        said = await self.stdout.read()
        await self.wait()
        return said, None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal.

        Raises:
            ProcessLookupError: it has ended.
        """
        if self._end.done():
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def _ended(reports: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    code = int(await reports.readline())
    writer.close()
    await writer.wait_closed()
    return code


@cache
def _fork_server() -> socket.socket:
    """Return the socket of the fork server of this process, which ends with it."""
    orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - a program of ours
            [sys.executable, "-P", str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        orders.close()
        process.wait()

    atexit.register(end)
    return orders
