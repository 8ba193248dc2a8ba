"""An HTTP server for requests from the internet: few connections, small bodies, and a short wait at the end."""

from __future__ import annotations

import asyncio
import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import structlog
from aiohttp import web
from aiohttp.web_protocol import _ErrInfo

from connector.setup import ConnectionRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    # Does the work of a request and returns its answer, or raises TimeoutError while the work continues.
    InTime = Callable[[Callable[[], Awaitable[web.Response]]], Awaitable[web.Response]]

log = structlog.get_logger(__name__)

T = TypeVar("T")

_LARGEST_BYTES = 1024 * 1024
_CLOSE_WITHIN_S = 0.5
# How long to drain a body after the response.
_LINGERS_S = 1.0
# Open connections; most systems limit a process to 1,024 open files.
MOST_CONNECTIONS = 400
# Time-outs for the headers of the first request, from the start of the connection, and of each further one, from the
# last answer. The second is longer than proxies keep a connection.
HEADERS_WITHIN_S = 10.0
_IDLE_S = 75.0
# Bound for untrusted text in the log.
_MAX_LOGGED_CHARS = 100
_WARNING_INTERVAL_S = 60.0


class _Connections:
    """Keep the number of open connections below a bound.

    Beyond the bound, a new connection closes the one that has waited longest for a request. If all others are serving
    requests, the new connection is closed. Connections that send nothing, or an endless body, block no request.

    Args:
        most: the bound.
        headers_within_s: time-out for the headers of the first request, from the start of the connection.
    """

    def __init__(self, most: int, headers_within_s: float) -> None:
        self._most = most
        self._headers_within_s = headers_within_s
        # Oldest first.
        self._waiting: dict[web.RequestHandler, None] = {}
        self._working: set[web.RequestHandler] = set()
        # Time-outs of connections without headers.
        self._timers: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._warned_s = -_WARNING_INTERVAL_S

    def begin(self, connection: web.RequestHandler) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[connection] = None
        self._timers[connection] = loop.call_later(self._headers_within_s, self._close, connection)
        if len(self._waiting) + len(self._working) <= self._most:
            return
        if loop.time() - self._warned_s >= _WARNING_INTERVAL_S:
            self._warned_s = loop.time()
            log.warning("http.too_many_connections", most=self._most)
        self._close(next(iter(self._waiting)))

    def end(self, connection: web.RequestHandler) -> None:
        self._waiting.pop(connection, None)
        self._working.discard(connection)
        self.headers_received(connection)

    def headers_received(self, connection: web.RequestHandler) -> None:
        """Cancel the time-out for headers."""
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    @contextmanager
    def serving(self, connection: web.RequestHandler) -> Iterator[None]:
        """Keep the connection open while a verified request is answered."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._working.add(connection)
        try:
            yield
        finally:
            if connection in self._working:
                self._working.remove(connection)
                self._waiting[connection] = None

    def _close(self, connection: web.RequestHandler) -> None:
        self.end(connection)
        connection.force_close()


class _Connection(web.RequestHandler):
    """One connection."""

    __slots__ = ("_all",)

    def __init__(self, server: web.Server, all_: _Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._all = all_

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._all.begin(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._all.end(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data. Fail the request of a malformed body, which aiohttp would leave waiting."""
        super().data_received(data)
        request = self._current_request
        if request is None or request.content.is_eof() or not self._messages:
            return
        flaw = self._messages[-1][0]
        if isinstance(flaw, _ErrInfo):
            self._messages.pop()
            request.content.set_exception(web.RequestPayloadError(flaw.message or str(flaw.exc)))
            request.content.feed_eof()  # end the body, so that nothing waits for more, even on close

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a malformed request with 4xx, and log one line; for an internal error, log the traceback."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        return unread(request, status, message or str(exc))


class BoundedServer:
    """Serves requests while the context is open. A subclass adds its routes.

    Work that is not done in time continues after the answer, so that a repeated request is a duplicate.

    Args:
        slots: bounds the requests handled at once; others wait.
    """

    def __init__(
        self,
        host: str,
        port: int,
        slots: asyncio.Semaphore,
        *,
        headers_within_s: float = HEADERS_WITHIN_S,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        self.port = port
        self._host = host
        self._slots = slots
        self._in_progress: set[asyncio.Future[Any]] = set()
        self._connections = _Connections(most_connections, headers_within_s)
        app = web.Application(client_max_size=_LARGEST_BYTES, middlewares=[self._admit])
        self.add_routes(app.router)
        self._runner = web.AppRunner(app, shutdown_timeout=_CLOSE_WITHIN_S)
        self._listener: asyncio.Server | None = None

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the paths of the server."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            ConnectionRefused: the address or port cannot be used.
        """
        await self._runner.setup()
        listening = asyncio.get_running_loop().create_server(self._protocol, self._host, self.port)
        try:
            self._listener = await listening
        except OSError as e:
            await self._runner.cleanup()
            raise ConnectionRefused(_refusal(self._host, self.port, e)) from e
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait briefly for requests in progress. Clients send unanswered ones again, to another process."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
        for task in self._in_progress:
            task.cancel()
        await asyncio.gather(*self._in_progress, return_exceptions=True)

    @property
    def is_connected(self) -> bool:
        """Whether requests can arrive."""
        return self._listener is not None and self._listener.is_serving()

    async def handled(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a verified request, once a slot is free. It continues if the caller is cancelled."""
        await self._slots.acquire()
        task = asyncio.ensure_future(work())
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)
        task.add_done_callback(lambda _: self._slots.release())
        return await asyncio.shield(task)

    def _protocol(self) -> _Connection:
        server = self._runner.server
        assert server is not None  # noqa: S101 - it was set up
        return _Connection(
            server,
            self._connections,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_IDLE_S,
            lingering_time=_LINGERS_S,
        )

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # Unpacking an unverified body costs far more CPU than sending it.
        if encoding := request.headers.get("Content-Encoding"):
            log.info("http.encoding_refused", encoding=first_line(encoding), remote=request.remote)
            return web.Response(status=415, text="Content-Encoding is not supported.\n")
        self._connections.headers_received(request.protocol)
        return await handler(request)


def first_line(text: str) -> str:
    """Return the start of the first line of an untrusted text, for the log."""
    return next(iter(text.splitlines()), "")[:_MAX_LOGGED_CHARS]


def unread(request: web.BaseRequest, status: int, why: str) -> web.Response:
    log.info("http.bad_request", why=first_line(why), remote=request.remote)
    response = web.Response(status=status)
    response.force_close()
    return response


def _refusal(host: str, port: int, error: OSError) -> str:
    where = f"{host} port {port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"Cannot listen on {where}: another program uses it. End that program, or choose another port."
        case errno.EACCES | errno.EPERM:
            return f"This system user may not listen on {where}: choose a port above 1023."
        case _:
            return f"Cannot listen on {where} ({error.strerror or error}). Check the address."
