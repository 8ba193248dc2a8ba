"""A proxy of a local Redis server that drops replies after the server has executed the commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


class FaultInjectingProxy:
    """Forwards everything except the replies that `lose` names.

    Attributes:
        url: of the proxy.
        lost: number of dropped replies.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._named: list[bytes] = []
        self._action: Callable[[], Awaitable[None]] | None = None
        self.url = ""
        self.lost = 0

    def lose(self, command: bytes, times: int = 1, action: Callable[[], Awaitable[None]] | None = None) -> None:
        """Close the connection instead of sending the next reply to this command. `action` runs first."""
        self._named = [command] * times
        self._action = action

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
        with suppress(ConnectionError):
            while asked := await reader.read(1 << 20):
                back.write(asked)
                reply = await there.read(1 << 20)
                if self._named and self._named[0] in asked:
                    await self._lose()
                    break
                writer.write(reply)
        for each in (writer, back):
            each.close()

    async def _lose(self) -> None:
        self._named.pop()
        self.lost += 1
        if self._action is not None:
            await self._action()


@asynccontextmanager
async def fault_injecting_proxy(port: int) -> AsyncIterator[FaultInjectingProxy]:
    """Start a proxy of the server at this port, for small commands."""
    proxy = FaultInjectingProxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    try:
        yield proxy
    finally:
        server.close()
