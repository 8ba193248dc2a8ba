"""Connections of the HTTP server: a bound on their number, and a time-out for headers."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web
from aiohttp.web_protocol import _ErrInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

log = structlog.get_logger(__name__)

# Bound for untrusted text in the log.
_MAX_LOGGED_CHARS = 100
_WARNING_INTERVAL_S = 60.0


class HttpConnections:
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


class HttpConnection(web.RequestHandler):
    """One connection. A malformed request writes one line to the log."""

    __slots__ = ("_all",)

    def __init__(self, server: web.Server, all_: HttpConnections, **options: Any) -> None:
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
        """Answer a malformed request with 4xx. For an internal error, log the traceback."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        log.info("http.bad_request", why=first_line(message or str(exc)), remote=request.remote)
        response = web.Response(status=status, text="Malformed request.\n")
        response.force_close()
        return response


def first_line(text: str) -> str:
    """Return the start of the first line of an untrusted text, for the log."""
    return next(iter(text.splitlines()), "")[:_MAX_LOGGED_CHARS]
