"""Socket Mode: the app's WebSocket connections and what goes over them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Literal

from aiohttp import WSMsgType, web

if TYPE_CHECKING:
    from collections.abc import Callable

    from .delivery import Delivery
    from .workspace import Workspace

DisconnectReason = Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets"]

_MAX_CONNECTIONS = 10
_HOST = "applink-local"


class Connection:
    """One WebSocket of the app. ``send`` queues; a task of the connection writes."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._request = request
        self._socket = socket
        self._frames: asyncio.Queue[str | None] = asyncio.Queue()

    def send(self, frame: str) -> None:
        self._frames.put_nowait(frame)

    def finish(self) -> None:
        """Close properly, after what is queued."""
        self._frames.put_nowait(None)

    def abort(self) -> None:
        """Cut the TCP connection without a word."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def write(self, ping_interval_s: float) -> None:
        """Write what is queued, and a ping in every pause, until ``finish`` or the connection is gone."""
        with contextlib.suppress(ConnectionError):
            while not self._socket.closed:
                try:
                    async with asyncio.timeout(ping_interval_s):
                        frame = await self._frames.get()
                except TimeoutError:
                    await self._socket.ping(f"Ping from {_HOST}".encode())
                    continue
                if frame is None:
                    await self._socket.close()
                    return
                await self._socket.send_str(frame)


class SocketMode:
    """Owns the tickets and the connections of the workspace's one app; ``opened`` counts all there were."""

    def __init__(
        self,
        workspace: Workspace,
        delivery: Delivery,
        changed: Callable[[], None],
        *,
        ping_interval_s: float = 10.0,
        refresh_grace_s: float = 10.0,
    ) -> None:
        """Call ``changed`` whenever a connection has come or gone."""
        self.delivery = delivery
        self.opened = 0
        self._changed = changed
        self._workspace = workspace
        self._ping_interval_s = ping_interval_s
        self._refresh_grace_s = refresh_grace_s
        self._tickets: set[str] = set()
        self._connections: list[Connection] = []

    @property
    def connections(self) -> int:
        return len(self._connections)

    def ticket(self) -> str:
        """Return the query of a URL that opens one connection, once."""
        ticket = secrets.token_urlsafe(16)
        self._tickets.add(ticket)
        return f"ticket={ticket}&app_id={self._workspace.directory.bot.app_id}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=401, text="this URL was used before or never given out")
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        connection = Connection(request, socket)
        if len(self._connections) >= _MAX_CONNECTIONS:
            connection.send(_disconnect_frame("too_many_websockets"))
            connection.finish()
            await connection.write(self._ping_interval_s)
        else:
            await self._serve(connection, socket)
        return socket

    def disconnect(self, reason: DisconnectReason) -> None:
        """Tell all connections to go, as Slack does.

        A ``warning`` is only that. After ``refresh_requested`` they get no more events and are closed after a
        grace if they have not gone by themselves; otherwise they are closed at once.
        """
        for connection in self._connections:
            connection.send(_disconnect_frame(reason))
            if reason == "warning":
                continue
            self.delivery.detach(connection)
            if reason == "refresh_requested":
                asyncio.get_running_loop().call_later(self._refresh_grace_s, connection.finish)
            else:
                connection.finish()

    def drop(self) -> None:
        """Cut all connections, as a network does: no close frame, nothing."""
        for connection in tuple(self._connections):
            self._gone(connection)
            connection.abort()

    def close(self) -> None:
        self.delivery.close()
        for connection in self._connections:
            connection.finish()

    async def _serve(self, connection: Connection, socket: web.WebSocketResponse) -> None:
        self._connections.append(connection)
        self.opened += 1
        connection.send(self._hello_frame())
        self._workspace.set_bot_online(True)
        self._changed()
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(connection.write(self._ping_interval_s))
            self.delivery.attach(connection)
            try:
                async for message in socket:
                    if message.type == WSMsgType.TEXT:
                        self._received(message.data, connection)
            finally:
                writer.cancel()
                self._gone(connection)

    def _gone(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self.delivery.detach(connection)
            self._workspace.set_bot_online(bool(self._connections))
            self._changed()

    def _received(self, text: str, connection: Connection) -> None:
        try:
            frame = json.loads(text)
        except ValueError:
            return
        if not isinstance(frame, dict):
            return
        if frame.get("type") == "ping":
            connection.send(json.dumps({**frame, "type": "pong"}))
        elif isinstance(envelope_id := frame.get("envelope_id"), str):
            self.delivery.acknowledge(envelope_id)

    def _hello_frame(self) -> str:
        return json.dumps(
            {
                "type": "hello",
                "num_connections": len(self._connections),
                "connection_info": {"app_id": self._workspace.directory.bot.app_id},
                "debug_info": {"host": _HOST, "build_number": 1, "approximate_connection_time": 18060},
            }
        )


def _disconnect_frame(reason: DisconnectReason) -> str:
    return json.dumps({"type": "disconnect", "reason": reason, "debug_info": {"host": _HOST}})
