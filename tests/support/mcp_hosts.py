"""Servers for tests of `tool-mcp`: real processes, over stdio and over HTTP on loopback."""

import asyncio
import base64
import json
import os
import sys
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ports import free_port

from orchestrator_interactive.kernel import ModuleCoordinator
from orchestrator_interactive.kernel.tool_support import CallContext, current_call, reporting

HERE = Path(__file__).parent / "mcp_servers"
HONEST, RAW = HERE / "honest_server.py", HERE / "raw_server.py"
WITHIN_S = 20.0


def stdio(file: Path = HONEST, *args: str, **options: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(file), *args], **options}


def raw(case: dict[str, Any], **options: Any) -> dict[str, Any]:
    packed = zlib.compress(json.dumps(case).encode())  # the system limits the size of an argument
    return stdio(RAW, base64.b64encode(packed).decode(), **options)


@dataclass
class Host:
    """A session with mounted servers; `asked` are the questions to people, and `answers` the answers to them."""

    coordinator: ModuleCoordinator
    close: Callable[[], Awaitable[None]] | None = None
    authors: frozenset[str] = frozenset({"UADA"})
    answers: list[dict[str, Any] | None] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.coordinator.register_capability("people.answer", self._answer)

    async def _answer(self, text: str, **more: Any) -> dict[str, Any] | None:
        assert current_call.get() is not None  # it is known for which call people are asked
        self.asked.append({"text": text, **more})
        self.is_asked.set()
        if not self.answers:
            await asyncio.Event().wait()
        return self.answers.pop(0)

    @property
    def tools(self) -> dict[str, Any]:
        tools: dict[str, Any] = self.coordinator.get("tools")
        return tools

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool as the loop does."""

        async def authors() -> frozenset[str]:
            return self.authors

        context = CallContext("c1", name, arguments, lambda: None, authors)
        token = current_call.set(context)
        try:
            with reporting(self.progress.append):
                async with asyncio.timeout(WITHIN_S):
                    return await self.tools[name].execute(arguments)
        finally:
            current_call.reset(token)

    async def text(self, name: str, /, **arguments: Any) -> str:
        return str((await self.call(name, **arguments)).get_serialized_output())


class HttpServer:
    """The honest server over HTTP, in a process that can be ended and started again at the same port."""

    async def __aenter__(self) -> Self:
        self.port = free_port()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(HONEST), "http", str(self.port), stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(WITHIN_S):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                await asyncio.sleep(0.02)  # the process binds its port when it is ready

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def is_running(pid: int) -> bool:
    """Return whether a process exists, and is no zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - there is no event in this process
            await asyncio.sleep(0.01)


async def gone(pid: int) -> None:
    """Wait for the end of a process."""
    async with asyncio.timeout(WITHIN_S):
        while is_running(pid):
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
            await asyncio.sleep(0.01)
