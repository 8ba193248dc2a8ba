"""Where the calls of `gated_tool` wait, in this process or in another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal, Self

GATED_TOOL = Path(__file__).parent / "gated_tool.py"
_WITHIN_S = 60.0


class Reached(asyncio.Event):
    """An event of a program under test: to wait for it in vain is an error, after which pytest shows the logs."""

    async def wait(self) -> Literal[True]:
        async with asyncio.timeout(_WITHIN_S):
            return await super().wait()


class ToolGate:
    """`reached` is set once a call waits here, `left` once one has gone away before the gate was opened.

    `calls` counts those that came.
    """

    def __init__(self, *, is_open: bool = False) -> None:
        self.reached = Reached()
        self.left = Reached()
        self.calls = 0
        self._opened = asyncio.Event()
        if is_open:
            self._opened.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._wait, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.open()
        self._server.close()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def open(self) -> None:
        self._opened.set()

    def close(self) -> None:
        """Hold the calls that come from now on."""
        self._opened.clear()
        self.reached.clear()

    async def _wait(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        self.reached.set()
        opened, gone = asyncio.create_task(self._opened.wait()), asyncio.create_task(reader.read())
        await asyncio.wait((opened, gone), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            self.left.set()
        opened.cancel()
        gone.cancel()
        writer.close()
