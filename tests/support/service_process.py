"""The real command `amplifier-slack` in its own processes, with the local Slack.

They are forked, which saves the start of Python and its imports; `playing` runs what `make play` does.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self

import pytest

AMPLIFIER_SLACK = str(Path(sys.executable).parent / "amplifier-slack")
_URL = re.compile(r"http://127\.0\.0\.1:\d+/")
# The environment of the tests must not affect the service.
_OURS = ("SLACK_", "ANTHROPIC_", "OPENAI_", "AMPLIFIER_")


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


@dataclass(frozen=True)
class Ended:
    code: int
    output: str


async def run_command(*arguments: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run `amplifier-slack` with these arguments to its end. It keeps nothing unless `env` names a store."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"AMPLIFIER_SLACK_STORE": f"sqlite:{folder}/kept.db", **(env or {})}
        process = await ForkedProcess.start([AMPLIFIER_SLACK, *arguments], _environment(kept))
        async with asyncio.timeout(30):
            output, _ = await process.communicate()
    return Ended(await process.wait(), output.decode())


@asynccontextmanager
async def playing(folder: Path) -> AsyncIterator[str]:
    """Run `amplifier-slack play` once it is ready; gives the page's URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "amplifier_slack", "play", "--port", "0", "--folder", str(folder)),
        env=_environment({}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(30):
            url = await _ready_url(process)
        yield url
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


@dataclass
class Serving:
    """The real command in a process of its own."""

    process: ForkedProcess
    lines: list[str] = field(default_factory=list)
    _heard: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    async def listen(self) -> None:
        async for line in self.process.stdout:
            async with self._heard:
                self.lines.append(line.decode())
                self._heard.notify_all()

    async def says(self, text: str) -> None:
        """Wait until its log has this text."""
        async with asyncio.timeout(40), self._heard:
            await self._heard.wait_for(lambda: text in self.output)

    async def ended(self, number: signal.Signals | None = None, within_s: float = 10) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if number is not None:
            self.process.send_signal(number)
        async with asyncio.timeout(within_s):
            return await self.process.wait()


@asynccontextmanager
async def serving(env: Mapping[str, str], *arguments: str, command: Sequence[str] = ("run",)) -> AsyncIterator[Serving]:
    """Run a command that serves; it is killed at the end if it has not ended by then. A failing test shows its log."""
    process = await ForkedProcess.start([AMPLIFIER_SLACK, *command, *arguments], _environment(env))
    service = Serving(process)
    listening = asyncio.create_task(service.listen())
    try:
        yield service
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening
        print(service.output)  # noqa: T201 - pytest shows it when the test fails


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**inherited, "PYTHONUNBUFFERED": "1", **env}


# Runs a test with the agents in the process of the service, and with those in another one.
BOTH_PLACES = pytest.mark.parametrize("agents_in", ["service", "another process"], indirect=True)


def remote_sessions() -> bool:
    """Return whether tests let the agents of each service run in a process of their own: with `SESSIONS=grpc`."""
    return os.environ.get("SESSIONS") == "grpc"


def free_address() -> str:
    """Return an address of this machine that no program uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@asynccontextmanager
async def serving_with_agents(env: Mapping[str, str], *arguments: str) -> AsyncIterator[Serving]:
    """Run the service, and with `SESSIONS=grpc` also the process of its agents; `lines` are those of both."""
    if not remote_sessions():
        async with serving(env, *arguments) as service:
            yield service
        return
    address = free_address()
    theirs = {name: value for name, value in env.items() if name != "AMPLIFIER_SLACK_OBSERVE"}
    command, url = ("sessions", "serve", "--listen", address), f"grpc://{address}"
    async with (
        serving(theirs, *arguments, command=command) as sessions,
        serving({**env, "AMPLIFIER_SLACK_SESSIONS": url}, *arguments) as service,
    ):
        service.lines.extend(sessions.lines)
        sessions.lines, sessions._heard = service.lines, service._heard
        yield service


async def _ready_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    seen = ""
    async for line in process.stdout:
        seen += line.decode()
        if match := _URL.search(line.decode()):
            return match[0]
    raise AssertionError(f"the service did not get ready:\n{seen}")
