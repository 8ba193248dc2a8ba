"""One WebSocket connection of the app."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "applink-local"


class Connection:
    """A connection with a send queue, which ``write`` empties. A frozen one stays open but is silent."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._socket = socket
        self._frames: asyncio.Queue[str | None] = asyncio.Queue()
        self.frozen = False

    def send(self, frame: str) -> None:
        self._frames.put_nowait(frame)

    def finish(self) -> None:
        """Send the queued frames, then close with a close frame."""
        if self.frozen:
            self.abort()
        self._frames.put_nowait(None)

    def abort(self) -> None:
        """Cut the TCP connection without a close frame."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def freeze(self) -> None:
        """Stop sending and answering, pings included."""
        self.frozen = True

    async def write(self, ping_interval_s: float) -> None:
        """Write queued frames, and a ping after each idle interval, until ``finish`` or a disconnect."""
        with contextlib.suppress(ConnectionError):
            while not self._socket.closed:
                frame: str | None = ""
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ping_interval_s):
                        frame = await self._frames.get()
                if self.frozen:
                    continue
                if frame is None:
                    await self._socket.close()
                    return
                if frame:
                    await self._socket.send_str(frame)
                else:
                    await self._socket.ping(f"Ping from {HOST}".encode())

    async def texts(self) -> AsyncIterator[str]:
        """Yield text frames of the app until it disconnects; a frozen connection is then cut without a close frame."""
        with contextlib.suppress(ConnectionError):
            async for message in self._socket:
                if self.frozen:
                    continue
                if message.type == WSMsgType.TEXT:
                    yield message.data
                elif message.type == WSMsgType.PING:
                    await self._socket.pong(message.data)
            if self.frozen:
                self.abort()
            else:
                await self._socket.close()
