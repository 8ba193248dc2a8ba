"""A WebSocket connection of Socket Mode."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from aiohttp import ClientWSTimeout, WSMsgType

from connector.inbound.dispatcher import parse_json
from connector.slack_api.errors import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger(__name__)

# Errors of writing to a closed socket. Reading from it reports the close too.
_LOST = (aiohttp.ClientError, ConnectionError)
# Bound for a malformed frame in the log.
_MAX_LOGGED_CHARS = 100
_RETRY, _REFUSED = Backoff(0.1, 30.0, jitter=0.5), Backoff(10.0, 120.0, jitter=0.5)


class NotOpened(Exception):  # noqa: N818 - what Slack did
    """A connection could not be opened; the message is Slack's error code, or ours.

    Attributes:
        retry_after_s: the wait that Slack requests.
    """

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class SocketTiming:
    """Number of connections, and their intervals in seconds.

    Args:
        first_hello_within_s: time-out from the start to the hello of the first connection.
        hello_within_s: time-out from requesting an address to Slack's hello.
        silent_for_s: a connection is dead after this time without a frame, pongs included.
        linger_s: how long a replaced connection is still read after the hello of its successor.
        min_lifetime_s: a connection that ends sooner counts as a failure.
        suspend_check_s: how often to check for a suspend of the machine.
        retry: back-off after a failure; `refused`: after Slack refused a connection.
        drain_within_s: time for envelopes in progress at shutdown; `close_within_s`: for the close handshake.
    """

    connections: int = 2
    first_hello_within_s: float = 20.0
    hello_within_s: float = 10.0
    ping_every_s: float = 5.0
    silent_for_s: float = 12.0
    linger_s: float = 8.0
    min_lifetime_s: float = 10.0
    suspend_check_s: float = 1.0
    drain_within_s: float = 0.4
    close_within_s: float = 0.4
    retry: Backoff = _RETRY
    refused: Backoff = _REFUSED


class WebSocketConnection:
    """A WebSocket from Slack's hello to its end.

    `leaving` is set when it must be replaced: Slack announced a disconnect, `leave` was called, or it has ended. `why`
    is the reason.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool], timing: SocketTiming) -> None:
        self.leaving = asyncio.Event()
        self.ended = asyncio.Event()
        self.why = ""
        self._socket = socket
        self._timing = timing
        self._began_s = asyncio.get_running_loop().time()

    @classmethod
    async def opened(
        cls, http: aiohttp.ClientSession, url: str, proxy: str | None, timing: SocketTiming
    ) -> WebSocketConnection:
        """Connect and wait for Slack's hello.

        Raises:
            NotOpened: Slack sent a disconnect or closed the connection.
        """
        # No autoping: pings and pongs must reach `receive`, whose time-out detects a dead connection.
        timeout = ClientWSTimeout(ws_close=timing.close_within_s)
        socket = await http.ws_connect(url, autoping=False, timeout=timeout, proxy=proxy)
        connection = cls(socket, timing)
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(socket.close)
            while (frame := await connection._frame()) is None or frame.get("type") != "hello":
                if frame is None or frame.get("type") == "disconnect":
                    raise NotOpened("closed_before_hello" if frame is None else str(frame.get("reason")))
            on_failure.pop_all()
        return connection

    @property
    def is_stable(self) -> bool:
        return asyncio.get_running_loop().time() - self._began_s >= self._timing.min_lifetime_s

    def leave(self, why: str) -> None:
        """Request a replacement of this connection."""
        self.why = self.why or why
        self.leaving.set()

    async def listen(self, take: Callable[[str, object], Awaitable[None]]) -> None:
        """Pass id and payload of every envelope to `take` until the connection ends; read the next after it returns.

        Slack repeats an envelope, on any connection, until its id is acknowledged.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                pinging = tasks.create_task(self._ping())
                while (frame := await self._frame()) is not None:
                    if isinstance(frame.get("envelope_id"), str):
                        await take(frame["envelope_id"], frame.get("payload"))
                    elif frame.get("type") == "disconnect":
                        self.leave(str(frame.get("reason")))
                pinging.cancel()
        finally:
            self.leave("lost")
            self.ended.set()

    async def send(self, text: str) -> bool:
        """Send a text frame. Returns False if the connection is lost."""
        try:
            await self._socket.send_str(text)
        except _LOST:
            return False
        return True

    async def close(self) -> None:
        await self._socket.close()

    async def _frame(self) -> dict[str, Any] | None:
        """Return the next JSON frame; `None`: the connection is closed or silent."""
        while True:
            try:
                message = await self._socket.receive(self._timing.silent_for_s)
            except TimeoutError:
                self.leave("silent")
                return None
            match message.type:
                case WSMsgType.TEXT:
                    with suppress(ValueError):
                        if isinstance(frame := parse_json(message.data), dict):
                            return frame
                    log.warning("socket.unreadable", frame=message.data[:_MAX_LOGGED_CHARS])
                case WSMsgType.PING:
                    with suppress(*_LOST):
                        await self._socket.pong(message.data)
                case WSMsgType.PONG | WSMsgType.BINARY:
                    pass
                case _:
                    return None

    async def _ping(self) -> None:
        with suppress(*_LOST):
            while True:
                await asyncio.sleep(self._timing.ping_every_s)
                await self._socket.ping()
