"""One WebSocket of Socket Mode."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from aiohttp import ClientWSTimeout, WSMsgType

from connector.inbound.backoff import Backoff
from connector.inbound.outside_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger(__name__)

# How writing to a socket fails that is no more; reading from it says so, too.
_LOST = (aiohttp.ClientError, ConnectionError)
# What is kept of a frame that is none of Slack's, for the log.
_MAX_LOGGED_CHARS = 100


class NotOpened(Exception):  # noqa: N818 - what Slack did
    """A connection could not be opened; the message is Slack's word for why, or ours.

    Attributes:
        retry_after_s: how long Slack asks us to wait.
    """

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class SocketTiming:
    """How many connections there are, and their intervals in seconds.

    Args:
        reached_within_s: from the start to the first hello of all.
        hello_within_s: from the request for a connection to Slack's hello.
        silent_for_s: a connection of which nothing was heard for so long, not even an answer to a ping, is dead.
        linger_s: how long an old connection is heard, once the one in its place has said hello.
        lived_s: one that ends sooner counts as a failure.
        look_s: how often it is looked whether the machine has slept.
        retry: after a failure; `refused`: where Slack has said that it wants no connection.
        drain_within_s: at the end, for what is at work; `close_within_s`: for Slack to hear that we go.
    """

    connections: int = 2
    reached_within_s: float = 20.0
    hello_within_s: float = 10.0
    ping_every_s: float = 5.0
    silent_for_s: float = 12.0
    linger_s: float = 8.0
    lived_s: float = 10.0
    look_s: float = 1.0
    drain_within_s: float = 0.4
    close_within_s: float = 0.4
    retry: Backoff = field(default_factory=lambda: Backoff(0.1, 30.0))
    refused: Backoff = field(default_factory=lambda: Backoff(10.0, 120.0))


@dataclass(frozen=True, slots=True)
class SocketEnvelope:
    """What Slack hands us; it comes again, maybe on another connection, until its id is acknowledged."""

    id: str
    payload: Any

    def ack(self, reply: dict[str, Any] | None) -> str:
        frame: dict[str, Any] = {"envelope_id": self.id}
        return json.dumps(frame if reply is None else {**frame, "payload": reply})


class WebSocketConnection:
    """A WebSocket from Slack's hello to its end.

    `leaving` is set when another one is to take its place: Slack has said so, somebody here has, or it has ended;
    `why` says which.
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
            NotOpened: Slack has said something else.
        """
        # Pings and pongs are signs of life: they are to be seen.
        timeout = ClientWSTimeout(ws_close=timing.close_within_s)
        socket = await http.ws_connect(url, autoping=False, timeout=timeout, proxy=proxy)
        connection = cls(socket, timing)
        try:
            await connection._await_hello()
        except BaseException:
            await socket.close()
            raise
        return connection

    @property
    def has_lived(self) -> bool:
        return asyncio.get_running_loop().time() - self._began_s >= self._timing.lived_s

    def leave(self, why: str) -> None:
        """Let another connection take the place of this one."""
        self.why = self.why or why
        self.leaving.set()

    async def listen(self, take: Callable[[SocketEnvelope], Awaitable[None]]) -> None:
        """Give `take` every envelope until the connection ends; none is read before the last one was taken."""
        try:
            async with asyncio.TaskGroup() as tasks:
                pinging = tasks.create_task(self._ping())
                while (frame := await self._frame()) is not None:
                    if isinstance(frame.get("envelope_id"), str):
                        await take(SocketEnvelope(frame["envelope_id"], frame.get("payload")))
                    elif frame.get("type") == "disconnect":
                        self.leave(str(frame.get("reason")))
                pinging.cancel()
        finally:
            self.leave("lost")
            self.ended.set()

    async def send(self, text: str) -> bool:
        """Whether it is on its way."""
        try:
            await self._socket.send_str(text)
        except _LOST:
            return False
        return True

    async def close(self) -> None:
        await self._socket.close()

    async def _await_hello(self) -> None:
        frame = await self._frame()
        while frame is not None and frame.get("type") != "hello":
            if frame.get("type") == "disconnect":
                raise NotOpened(str(frame.get("reason")))
            frame = await self._frame()
        if frame is None:
            raise NotOpened("closed_before_hello")

    async def _frame(self) -> dict[str, Any] | None:
        """What Slack says next; `None`: it says nothing any more."""
        while True:
            try:
                message = await self._socket.receive(self._timing.silent_for_s)
            except TimeoutError:
                self.leave("silent")
                return None
            match message.type:
                case WSMsgType.TEXT:
                    if (frame := _parse_frame(message.data)) is not None:
                        return frame
                case WSMsgType.PING:
                    await self._pong(message.data)
                case WSMsgType.PONG | WSMsgType.BINARY:
                    pass
                case _:
                    return None

    async def _pong(self, data: bytes) -> None:
        with suppress(*_LOST):
            await self._socket.pong(data)

    async def _ping(self) -> None:
        with suppress(*_LOST):
            while True:
                await asyncio.sleep(self._timing.ping_every_s)
                await self._socket.ping()


def _parse_frame(text: str) -> dict[str, Any] | None:
    try:
        frame = parse_json(text)
    except ValueError:
        frame = None
    if not isinstance(frame, dict):
        log.warning("socket.unreadable", frame=text[:_MAX_LOGGED_CHARS])
        return None
    return frame
