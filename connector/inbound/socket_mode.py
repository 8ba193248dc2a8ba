"""Socket Mode over several connections, so that events arrive while one connection reconnects."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import structlog
from aiohttp import ClientWSTimeout, WSMsgType

from connector.inbound.dispatcher import parse_json
from connector.setup import ConnectionRefused
from connector.slack_api.errors import Backoff, SlackCallFailed, error_boundary
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from connector.inbound.dispatcher import Receive
    from connector.slack_api.client import SlackClient

log = structlog.get_logger(__name__)

# Tolerance: the two clocks whose difference shows a suspend are not read at the same instant.
_SUSPEND_TOLERANCE_S = 1.0
# Acknowledgements queued for a connection. Slack redelivers events without one; these are detected as duplicates.
_MAX_UNSENT = 1000
_SWITCHED_OFF = "link_disabled"
_TOO_MANY = "too_many_websockets"
# Errors by which Slack refuses connections: retrying at once does not help.
_REFUSALS = frozenset({_SWITCHED_OFF, _TOO_MANY, "access_denied", "no_permission", "missing_scope"})
_REFUSALS |= {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"}
_HINTS = {
    _SWITCHED_OFF: "Socket Mode is switched off. Switch it on, on your app's page at api.slack.com/apps.",
    _TOO_MANY: "The app has as many connections as Slack allows (10): its other processes hold them.",
}
_DEFAULT_HINT = (
    "Check the app's token (xapp-…), and that Socket Mode is enabled, on your app's page at api.slack.com/apps."
)
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
            while (frame := await connection.frame()) is None or frame.get("type") != "hello":
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

    async def send(self, text: str) -> bool:
        """Send a text frame. Returns False if the connection is lost."""
        try:
            await self._socket.send_str(text)
        except _LOST:
            return False
        return True

    async def close(self) -> None:
        await self._socket.close()

    async def frame(self) -> dict[str, Any] | None:
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
                    log.warning("socket.unreadable", chars=len(message.data))
                    log.debug("socket.unreadable_frame", frame=message.data[:_MAX_LOGGED_CHARS])
                case WSMsgType.PING:
                    with suppress(*_LOST):
                        await self._socket.pong(message.data)
                case WSMsgType.PONG | WSMsgType.BINARY:
                    pass
                case _:
                    return None

    async def ping(self) -> None:
        """Ping every `ping_every_s`: the pongs show that the connection is not dead."""
        with suppress(*_LOST):
            while True:
                await asyncio.sleep(self._timing.ping_every_s)
                await self._socket.ping()


def suspended_s() -> float:
    """Return the seconds that the machine was suspended since boot; 0.0 if the platform does not report it."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if boot is None else time.clock_gettime(boot) - time.clock_gettime(time.CLOCK_MONOTONIC)


def address_source(client: SlackClient, first: str = "") -> Callable[[], Awaitable[str]]:
    """Return a function that requests an unused address, or raises NotOpened. `first` is one that is known already."""
    known = [first] if first else []

    async def address() -> str:
        if known:
            return known.pop()
        try:
            return str((await client.call("apps.connections.open", {}, CallSlot()))["url"])
        except SlackCallFailed as e:
            raise NotOpened(e.error, e.retry_after_s) from e

    return address


class SocketMode:
    """Keeps connections open while the context is open, and handles every envelope.

    A connection that is being replaced is read until after the new one's hello. An envelope is acknowledged once
    `receive` returns status 200; if its connection is lost by then, on another connection.

    Args:
        http: the session of all connections.
        url: requests an address from Slack; an address is valid for one connection.
        receive: handles the payload of an envelope.
        slots: bounds the envelopes handled at once. While none is free, nothing is read.
    """

    def __init__(  # noqa: PLR0913 - dependencies; the last three have defaults
        self,
        http: aiohttp.ClientSession,
        url: Callable[[], Awaitable[str]],
        receive: Receive,
        slots: asyncio.Semaphore,
        *,
        timing: SocketTiming | None = None,
        proxy: str | None = None,
        suspended_s: Callable[[], float] = suspended_s,
    ) -> None:
        self.opened = 0
        self._http = http
        self._url = url
        self._receive = receive
        self._slots = slots
        self._timing = timing or SocketTiming()
        self._proxy = proxy
        self._suspended_s = suspended_s
        self._connections: list[WebSocketConnection] = []
        self._in_progress: set[asyncio.Task[None]] = set()
        self._unsent: deque[str] = deque(maxlen=_MAX_UNSENT)
        self._has_connected = asyncio.Event()
        self._failure = ""
        self._reported: set[str] = set()
        self._tasks = asyncio.TaskGroup()
        self._runner: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def is_connected(self) -> bool:
        """Whether Slack can deliver events."""
        return bool(self._connections)

    async def __aenter__(self) -> Self:
        """Wait for the hello on the first connection.

        Raises:
            ConnectionRefused: no connection opens in time.
        """
        self._runner = asyncio.create_task(self._run())
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(self._end)
            try:
                async with asyncio.timeout(self._timing.first_hello_within_s):
                    await self._has_connected.wait()
            except TimeoutError as e:
                raise ConnectionRefused(self._refusal()) from e
            on_failure.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait briefly for envelopes in progress. Slack redelivers unacknowledged ones to another process."""
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=self._timing.drain_within_s)
        await self._end()

    async def _end(self) -> None:
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait((self._runner,))
        for connection in self._connections:  # opened, but not yet served
            await connection.close()

    def _refusal(self) -> str:
        if self._failure in _REFUSALS:
            return f"Slack does not let us connect ({self._failure}). {_HINTS.get(self._failure, _DEFAULT_HINT)}"
        return (
            f"Slack answers, but its Socket Mode connection cannot be opened ({self._failure or 'no answer'}). "
            "Check that the network allows WebSockets (wss)."
        )

    async def _run(self) -> None:
        async with self._tasks:
            for _ in range(self._timing.connections):
                self._tasks.create_task(self._maintain())
            self._tasks.create_task(self._watch_for_suspend())

    async def _maintain(self) -> None:
        """Keep one connection open; replace it when it is about to end."""
        failures, old = 0, None
        while True:
            try:
                connection = await self._connect()
            except NotOpened as e:
                failures += 1
                await self._back_off(e.why, failures, e.retry_after_s)
                continue
            if old is not None:
                self._tasks.create_task(self._retire(old))
            self._tasks.create_task(self._serve(connection))
            await connection.leaving.wait()
            old, is_refused = connection, connection.why in _REFUSALS
            failures = int(is_refused) if connection.is_stable else failures + 1
            await self._back_off(connection.why, failures)

    async def _connect(self) -> WebSocketConnection:
        """Open a connection and wait for Slack's hello.

        Raises:
            NotOpened: Slack cannot be reached, or refuses the connection.
        """
        try:
            async with asyncio.timeout(self._timing.hello_within_s):
                connection = await WebSocketConnection.opened(self._http, await self._url(), self._proxy, self._timing)
        except (aiohttp.ClientResponseError, ValueError) as e:  # their texts contain the address with its secret ticket
            raise NotOpened(f"HTTP {e.status}" if isinstance(e, aiohttp.ClientResponseError) else "bad_address") from e
        except (aiohttp.ClientError, OSError, TimeoutError) as e:
            raise NotOpened(str(e) or type(e).__name__) from e
        except NotOpened:
            raise
        except Exception as e:  # a Slack handler's border: retry after any error
            log.exception("socket.crashed")
            raise NotOpened(type(e).__name__) from e
        self.opened += 1
        self._connections.append(connection)
        self._reported.clear()
        self._has_connected.set()
        log.info("socket.opened", connections=self.connections)
        return connection

    async def _back_off(self, why: str, failures: int, retry_after_s: float | None = None) -> None:
        """Log why a connection is missing or being replaced, and wait for the back-off."""
        self._failure = why
        backoff = self._timing.refused if why in _REFUSALS else self._timing.retry
        delay_s = max(backoff.delay_s(failures), retry_after_s or 0.0)
        if why not in _REFUSALS:
            write = log.info if self._connections else log.warning
            write("socket.reconnecting", why=why, in_s=round(delay_s, 2), connections=self.connections)
        elif why not in self._reported:
            self._reported.add(why)
            log.error("socket.refused", why=why, hint=_HINTS.get(why, _DEFAULT_HINT), connections=self.connections)
        await asyncio.sleep(delay_s)

    async def _serve(self, connection: WebSocketConnection) -> None:
        """Handle every envelope until the connection ends. Slack repeats an envelope until its id is acknowledged."""
        try:
            with error_boundary("socket.crashed"):  # another connection replaces this one
                unsent = tuple(self._unsent)
                self._unsent.clear()
                for text in unsent:
                    await self._send(connection, text)
                async with asyncio.TaskGroup() as tasks:
                    pinging = tasks.create_task(connection.ping())
                    while (frame := await connection.frame()) is not None:
                        if isinstance(frame.get("envelope_id"), str):
                            await self._slots.acquire()
                            task = self._tasks.create_task(self._handle(connection, frame))
                            self._in_progress.add(task)
                            task.add_done_callback(self._in_progress.discard)
                        elif frame.get("type") == "disconnect":
                            connection.leave(str(frame.get("reason")))
                    pinging.cancel()
        finally:
            connection.leave("lost")
            connection.ended.set()
            self._connections.remove(connection)
            await connection.close()

    async def _retire(self, connection: WebSocketConnection) -> None:
        """Read a replaced connection for `linger_s`, then close it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.linger_s):
                await connection.ended.wait()
        await connection.close()

    async def _watch_for_suspend(self) -> None:
        """Replace all connections after a suspend: Slack may have closed them without a close frame."""
        before_s = self._suspended_s()
        while True:
            await asyncio.sleep(self._timing.suspend_check_s)
            now_s = self._suspended_s()
            if now_s - before_s > _SUSPEND_TOLERANCE_S:
                log.info("socket.machine_suspended", for_s=round(now_s - before_s))
                for connection in self._connections:
                    connection.leave("suspended")
            before_s = now_s

    async def _handle(self, connection: WebSocketConnection, frame: dict[str, Any]) -> None:
        acknowledgement, payload = {"envelope_id": frame["envelope_id"]}, frame.get("payload")
        try:
            with error_boundary("socket.not_received", envelope=frame["envelope_id"]):
                if isinstance(payload, dict):
                    reply = await self._receive(payload)
                    if reply.status != 200:
                        return  # Slack redelivers unacknowledged envelopes
                    if reply.payload is not None:
                        acknowledgement["payload"] = reply.payload
                else:
                    log.warning("socket.no_payload", envelope=frame["envelope_id"])
                await self._send(connection, json.dumps(acknowledgement))
        finally:
            self._slots.release()

    async def _send(self, connection: WebSocketConnection, text: str) -> None:
        """Send on this connection, else on any other, else queue for the next: Slack matches acknowledgements by id."""
        for each in (connection, *reversed(self._connections)):
            if await each.send(text):
                return
        self._unsent.append(text)
