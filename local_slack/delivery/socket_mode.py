"""Socket Mode: the app's WebSocket connections and their frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Literal

from aiohttp import WSMsgType, web

from local_slack.delivery.recorder import Recorder, shortened
from local_slack.json_limits import parse_json
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from local_slack.delivery.delivery import Delivery
    from local_slack.workspace.workspace import Workspace

DisconnectReason = Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets"]
_MAX_CONNECTIONS = 10

HOST = "applink-local"


class Connection:
    """A connection with a send queue, which ``write`` empties. A ``frozen`` one stays open and silent."""

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


class SocketModeEndpoint:
    """Own the tickets and connections of the app; ``opened`` counts all connections so far.

    While ``enabled`` is False, ``apps.connections.open`` is refused.
    """

    def __init__(  # noqa: PLR0913 - two are settings
        self,
        workspaces: Sequence[Workspace],
        delivery: Delivery,
        changed: Callable[[], None],
        record: Recorder,
        *,
        ping_interval_s: float = 10.0,
        refresh_grace_s: float = 10.0,
    ) -> None:
        """Call ``changed`` when a connection opens or closes."""
        self.delivery = delivery
        self.opened = 0
        self.enabled = True
        self._changed = changed
        self._record = record
        self._workspaces = workspaces
        self._app_id = workspaces[0].directory.bot.app_id
        self._ping_interval_s = ping_interval_s
        self._refresh_grace_s = refresh_grace_s
        self._tickets: set[str] = set()
        self._connections: list[Connection] = []
        self._over_http = False

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def frozen(self) -> bool:
        return any(connection.frozen for connection in self._connections)

    def set_over_http(self, over_http: bool) -> None:
        """Set whether events go to the app over HTTP: then it is online without a connection."""
        self._over_http = over_http
        self._show_presence()

    def ticket(self) -> str:
        """Return the query of a URL that opens one connection and is valid once."""
        if not self.enabled:
            raise SlackRefused("access_denied")
        ticket = secrets.token_urlsafe(16)
        self._tickets.add(ticket)
        return f"ticket={ticket}&app_id={self._app_id}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=401, text="this URL is unknown or was used before")
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=False, autoclose=False)
        await socket.prepare(request)
        connection = Connection(request, socket)
        if len(self._connections) >= _MAX_CONNECTIONS:
            self._record.note("socket_refused", reason="too_many_websockets")
            connection.send(_disconnect_frame("too_many_websockets"))
            connection.finish()
            await connection.write(self._ping_interval_s)
        else:
            await self._serve(connection)
        return socket

    def disconnect(self, reason: DisconnectReason) -> None:
        """Send a ``disconnect`` frame to all connections, as Slack does.

        After ``warning`` nothing else happens. After ``refresh_requested`` they get no more events and are closed
        after a grace period. Other reasons close them at once. ``link_disabled`` means that Socket Mode is switched
        off: no new connection opens until ``enable``.
        """
        self._record.note("disconnect", reason=reason, connections=self.connections)
        if reason == "link_disabled":
            self.enabled = False
            self._tickets.clear()
        for connection in self._connections:
            connection.send(_disconnect_frame(reason))
            if reason == "warning":
                continue
            self.delivery.detach(connection)
            if reason == "refresh_requested":
                asyncio.get_running_loop().call_later(self._refresh_grace_s, connection.finish)
            else:
                connection.finish()

    def enable(self) -> None:
        """Switch Socket Mode on again, after ``link_disabled``."""
        self.enabled = True

    def drop(self) -> None:
        """Cut all connections without a close frame, like a network failure."""
        self._record.note("drop", connections=self.connections)
        for connection in tuple(self._connections):
            self._gone(connection)
            connection.abort()

    def freeze(self) -> None:
        """Freeze all open connections: they stay open, and frames are lost in both directions.

        Events are still sent to them until the app closes them.
        """
        self._record.note("freeze", connections=self.connections)
        for connection in self._connections:
            connection.frozen = True

    def close(self) -> None:
        self.delivery.close()
        for connection in self._connections:
            connection.finish()

    async def _serve(self, connection: Connection) -> None:
        self._connections.append(connection)
        self.opened += 1
        self._record.note("socket_opened", connections=self.connections)
        connection.send(
            json.dumps(
                {
                    "type": "hello",
                    "num_connections": self.connections,
                    "connection_info": {"app_id": self._app_id},
                    "debug_info": {"host": HOST, "build_number": 1, "approximate_connection_time": 18060},
                }
            )
        )
        self._show_presence()
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(connection.write(self._ping_interval_s))
            self.delivery.attach(connection)
            try:
                async for text in connection.texts():
                    self._received(text, connection)
            finally:
                writer.cancel()
                self._gone(connection)

    def _gone(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self.delivery.detach(connection)
            self._record.note("socket_closed", connections=self.connections)
            self._show_presence()

    def _show_presence(self) -> None:
        for workspace in self._workspaces:
            workspace.set_bot_online(self._over_http or bool(self._connections))
        self._changed()

    def _received(self, text: str, connection: Connection) -> None:
        try:
            frame = parse_json(text)
        except ValueError:
            return
        if not isinstance(frame, dict):
            return
        if frame.get("type") == "ping":
            connection.send(json.dumps({**frame, "type": "pong"}))
        elif isinstance(envelope_id := frame.get("envelope_id"), str):
            payload = frame.get("payload")
            if payload:
                self._record.note("response_payload", envelope=envelope_id, payload=shortened(payload))
            self.delivery.acknowledge(envelope_id, payload)


def _disconnect_frame(reason: DisconnectReason) -> str:
    return json.dumps({"type": "disconnect", "reason": reason, "debug_info": {"host": HOST}})
