"""Socket Mode over several connections, so that events arrive while one connection reconnects."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import structlog

from connector.error_boundary import error_boundary
from connector.inbound.websocket import NotOpened, SocketTiming, WebSocketConnection
from connector.setup.credentials import ConnectionRefused
from connector.slack_api.errors import SlackCallFailed
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
        """Number of open connections."""
        return len(self._connections)

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
        try:
            with error_boundary("socket.crashed"):  # another connection replaces this one
                unsent = tuple(self._unsent)
                self._unsent.clear()
                for text in unsent:
                    await self._send(connection, text)
                await connection.listen(partial(self._take, connection))
        finally:
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

    async def _take(self, connection: WebSocketConnection, envelope_id: str, payload: object) -> None:
        await self._slots.acquire()
        task = self._tasks.create_task(self._handle(connection, envelope_id, payload))
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)
        task.add_done_callback(lambda _: self._slots.release())

    async def _handle(self, connection: WebSocketConnection, envelope_id: str, payload: object) -> None:
        acknowledgement: dict[str, Any] = {"envelope_id": envelope_id}
        with error_boundary("socket.not_received", envelope=envelope_id):  # Slack redelivers unacknowledged envelopes
            if isinstance(payload, dict):
                reply = await self._receive(payload)
                if reply.status != 200:
                    return
                if reply.payload is not None:
                    acknowledgement["payload"] = reply.payload
            else:
                log.warning("socket.no_payload", envelope=envelope_id)
            await self._send(connection, json.dumps(acknowledgement))

    async def _send(self, connection: WebSocketConnection, text: str) -> None:
        """Send on this connection, else on any other, else queue for the next: Slack matches acknowledgements by id."""
        for each in (connection, *reversed(self._connections)):
            if await each.send(text):
                return
        self._unsent.append(text)
