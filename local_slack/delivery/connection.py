"""One WebSocket of the app, and what can happen to it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "applink-local"


class Connection:
    """``send`` queues; a task of the connection writes. A frozen one stays open and is dead otherwise."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._socket = socket
        self._frames: asyncio.Queue[str | None] = asyncio.Queue()
        self.frozen = False

    def send(self, frame: str) -> None:
        self._frames.put_nowait(frame)

    def finish(self) -> None:
        """Close properly, after what is queued."""
        if self.frozen:
            self.abort()
        self._frames.put_nowait(None)

    def abort(self) -> None:
        """Cut the TCP connection without a word."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def freeze(self) -> None:
        """Send and answer nothing from now on, not even a ping."""
        self.frozen = True

    async def write(self, ping_interval_s: float) -> None:
        """Write what is queued, and a ping in every pause, until ``finish`` or the connection is gone."""
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
        """Give what the app sends until it leaves; a frozen connection is then cut, as it does not say goodbye."""
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
