"""Receive events over HTTP; verify each request before using it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

import structlog
from aiohttp import web

from connector.inbound.bounded_server import HEADERS_WITHIN_S, MOST_CONNECTIONS, BoundedServer, unread
from connector.inbound.dispatcher import DONE, NOT_NOW, Reply, parse_json
from connector.setup import PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.inbound.dispatcher import Receive
    from connector.setup import HttpTransport

log = structlog.get_logger(__name__)

# Slack waits for three seconds; the network gets the rest.
_ANSWER_WITHIN_S = 2.5
_FORM = "application/x-www-form-urlencoded"
# Older requests may be replays.
_WINDOW_S = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
_WRONG_SECRET = "The signature does not match: check that the signing secret is this app's."  # noqa: S105 - a sentence
_WRONG_TIME = "The timestamp is too far from the current time: check the clock of this machine."


class Malformed(Exception):  # noqa: N818 - names the body
    """The body cannot be read."""


class HttpServer(BoundedServer):
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
        headers_within_s: float = HEADERS_WITHIN_S,
        most_connections: int = MOST_CONNECTIONS,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            transport.host,
            transport.port,
            slots,
            headers_within_s=headers_within_s,
            most_connections=most_connections,
        )
        self._transport = transport
        self._receive = receive
        self._answer_within_s = answer_within_s
        self._now_s = now_s

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        log.info("http.listening", host=self._transport.host, port=self.port, path=PATH)
        return self

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the paths of Slack's requests and of health checks."""

        async def on_health(_request: web.Request) -> web.Response:
            return web.Response(text=f"ok\n{self._transport.health()}")

        router.add_post(PATH, self._on_request)
        router.add_get("/healthz", on_health)

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
            return unread(request, 400, str(e))  # RuntimeError: the connection is closed
        except Malformed as e:
            log.info("http.malformed", why=str(e), remote=request.remote)
            return web.Response(status=400, text=f"{e}\n")
        except TimeoutError:
            if raw is None:
                return unread(request, 408, "The body did not arrive in time.")
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
        return await self.handled(lambda: self._receive(body))


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
