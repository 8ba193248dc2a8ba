"""Receive events over HTTP; verify each request before using it."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import logging
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

import structlog
from aiohttp import web
from aiohttp.web_protocol import _ErrInfo

from connector.inbound.dispatcher import DONE, NOT_NOW, Reply, parse_json
from connector.setup import PATH, ConnectionRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    from connector.inbound.dispatcher import Receive
    from connector.setup import HttpTransport

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger(__name__)

_LARGEST_BYTES = 1024 * 1024
# Slack waits for three seconds; the network gets the rest.
_ANSWER_WITHIN_S = 2.5
_CLOSE_WITHIN_S = 0.5
# How long to drain a body after the response.
_LINGERS_S = 1.0
# Open connections; most systems limit a process to 1,024 open files.
_MOST_CONNECTIONS = 400
# Time-outs for the headers of the first request, from the start of the connection, and of each further one, from the
# last answer. The second is longer than proxies keep a connection.
_HEADERS_WITHIN_S = 10.0
_IDLE_S = 75.0
# Bound for untrusted text in the log.
_MAX_LOGGED_CHARS = 100
_WARNING_INTERVAL_S = 60.0
_FORM = "application/x-www-form-urlencoded"
# Older requests may be replays.
_WINDOW_S = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
_WRONG_SECRET = "The signature does not match: check that the signing secret is this app's."  # noqa: S105 - a sentence
_WRONG_TIME = "The timestamp is too far from the current time: check the clock of this machine."


class Malformed(Exception):  # noqa: N818 - names the body
    """The body cannot be read."""


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
        return _unread(request, status, message or str(exc))


class HttpServer:
    """Serves Slack's requests while the context is open.

    A request that is not stored in time gets 503, and its handler continues: the order of its conversation is kept, and
    the copy that Slack sends again is a duplicate.

    Args:
        receive: handles a body.
        slots: bounds the bodies handled at once; others wait.
    """

    def __init__(  # noqa: PLR0913 - its bounds have defaults
        self,
        transport: HttpTransport,
        receive: Receive,
        slots: asyncio.Semaphore,
        *,
        answer_within_s: float = _ANSWER_WITHIN_S,
        headers_within_s: float = _HEADERS_WITHIN_S,
        most_connections: int = _MOST_CONNECTIONS,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.port = transport.port
        self._transport = transport
        self._receive = receive
        self._slots = slots
        self._answer_within_s = answer_within_s
        self._now_s = now_s
        self._in_progress: set[asyncio.Future[Reply]] = set()
        self._connections = _Connections(most_connections, headers_within_s)
        self._runner = web.AppRunner(self._app(), shutdown_timeout=_CLOSE_WITHIN_S)
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            ConnectionRefused: the address or port cannot be used.
        """
        await self._runner.setup()
        listening = asyncio.get_running_loop().create_server(self._protocol, self._transport.host, self._transport.port)
        try:
            self._listener = await listening
        except OSError as e:
            await self._runner.cleanup()
            raise ConnectionRefused(_refusal(self._transport, e)) from e
        self.port = self._listener.sockets[0].getsockname()[1]
        log.info("http.listening", host=self._transport.host, port=self.port, path=PATH)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait briefly for requests in progress. Slack sends unanswered ones again, to another process."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
        for task in self._in_progress:
            task.cancel()
        await asyncio.gather(*self._in_progress, return_exceptions=True)

    @property
    def is_connected(self) -> bool:
        """Whether Slack can deliver events."""
        return self._listener is not None and self._listener.is_serving()

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

    def _app(self) -> web.Application:
        async def on_health(_request: web.Request) -> web.Response:
            return web.Response(text=f"ok\n{self._transport.health()}")

        app = web.Application(client_max_size=_LARGEST_BYTES, middlewares=[self._admit])
        app.router.add_post(PATH, self._on_request)
        app.router.add_get("/healthz", on_health)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # Slack sends no Content-Encoding. Unpacking an unverified body costs far more CPU than sending it.
        if encoding := request.headers.get("Content-Encoding"):
            log.info("http.encoding_refused", encoding=_first_line(encoding), remote=request.remote)
            return web.Response(status=415, text="Content-Encoding is not supported.\n")
        self._connections.headers_received(request.protocol)
        return await handler(request)

    async def _on_request(self, request: web.Request) -> web.Response:
        raw: bytes | None = None
        try:
            async with asyncio.timeout(self._answer_within_s):
                raw = await request.read()
                timestamp = request.headers.get("X-Slack-Request-Timestamp")
                signature = request.headers.get("X-Slack-Signature")
                flaw = flaw_of(self._transport.signing_secret, timestamp, signature, raw, self._now_s())
                if flaw is not None:
                    # The operator can fix these in the configuration.
                    level = logging.WARNING if flaw in (_WRONG_SECRET, _WRONG_TIME) else logging.INFO
                    log.log(level, "http.refused", why=flaw, remote=request.remote)
                    return web.Response(status=401, text="This request is not signed by Slack for this app.\n")
                with self._connections.serving(request.protocol):
                    reply = await self._answer(body_of(raw, request.content_type))
        except (web.RequestPayloadError, RuntimeError, ConnectionError) as e:
            if raw is not None:
                raise
            return _unread(request, 400, str(e))  # RuntimeError: the connection is closed
        except Malformed as e:
            log.info("http.malformed", why=str(e), remote=request.remote)
            return web.Response(status=400, text=f"{e}\n")
        except TimeoutError:
            if raw is None:
                return _unread(request, 408, "The body did not arrive in time.")
            log.warning("http.timeout", retry=request.headers.get("X-Slack-Retry-Num"))
            reply = NOT_NOW
        if reply.payload is None:
            return web.Response(status=reply.status)
        return web.json_response(reply.payload, status=reply.status)

    async def _answer(self, body: dict[str, Any]) -> Reply:
        if body.get("type") == "url_verification":
            return Reply(200, {"challenge": str(body.get("challenge", ""))})
        if "ssl_check" in body:
            return DONE
        await self._slots.acquire()
        task = asyncio.ensure_future(self._receive(body))
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)
        task.add_done_callback(lambda _: self._slots.release())
        return await asyncio.shield(task)


def _first_line(text: str) -> str:
    """Return the start of the first line of an untrusted text, for the log."""
    return next(iter(text.splitlines()), "")[:_MAX_LOGGED_CHARS]


def _unread(request: web.BaseRequest, status: int, why: str) -> web.Response:
    log.info("http.bad_request", why=_first_line(why), remote=request.remote)
    response = web.Response(status=status)
    response.force_close()
    return response


def body_of(raw: bytes, content_type: str) -> dict[str, Any]:
    """Parse a body: an event as JSON, a click as JSON in a form field, or a command as a form.

    Raises:
        Malformed: the body has another format.
    """
    try:
        text = raw.decode()
        body = _form(text) if content_type == _FORM else parse_json(text)
    except ValueError as e:
        raise Malformed("The body cannot be read.") from e
    if not isinstance(body, dict):
        raise Malformed("The body is not an object.")
    return body


def _form(text: str) -> Any:
    fields = parse_qs(text, keep_blank_values=True, strict_parsing=True, errors="strict")
    if "payload" in fields:
        return parse_json(fields["payload"][-1])
    if not fields:
        raise Malformed("The form is empty.")
    return {name: values[-1] for name, values in fields.items()}


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """Sign a body as Slack does: docs.slack.dev/authentication/verifying-requests-from-slack.

    The SDK's `SignatureVerifier` raises on bodies that are not UTF-8.
    """
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def flaw_of(secret: str, timestamp: str | None, signature: str | None, body: bytes, now_s: float) -> str | None:
    """Return why a request is not accepted as Slack's, for the log; `None`: its signature is valid and recent."""
    if timestamp is None or signature is None:
        return "The request has no signature."
    if not _TIMESTAMP.fullmatch(timestamp) or not _SIGNATURE.fullmatch(signature):
        return "The signature does not have Slack's format."
    if not hmac.compare_digest(signature_of(secret, timestamp, body), signature):
        return _WRONG_SECRET
    return _WRONG_TIME if abs(now_s - int(timestamp)) > _WINDOW_S else None


def _refusal(transport: HttpTransport, error: OSError) -> str:
    where = f"{transport.host} port {transport.port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"Cannot listen on {where}: another program uses it. End that program, or choose another port."
        case errno.EACCES | errno.EPERM:
            return f"This system user may not listen on {where}: choose a port above 1023."
        case _:
            return f"Cannot listen on {where} ({error.strerror or error}). Check the address."
