"""Delivery over HTTP: signed requests to the app's request URL, as the Events API sends them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

import aiohttp
from yarl import URL

from local_slack.blocks.slack_json import VERIFICATION_TOKEN
from local_slack.json_limits import parse_json
from local_slack.workspace.errors import LocalSlackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local_slack.delivery.delivery import Delivery, Envelope
    from local_slack.delivery.recorder import Recorder

_AGENT = "Slackbot 1.0 (+https://api.slack.com/robots)"
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_FOLLOWED_REDIRECTS = 2
# Slack's reasons for a retry; any other error is an `http_error`.
_REASONS = {
    TimeoutError: "http_timeout",
    aiohttp.TooManyRedirects: "too_many_redirects",
    aiohttp.ClientConnectorError: "connection_failed",
}


class Signer:
    """Sign request bodies with the app's signing secret."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self.secret = secret
        self._clock = clock

    def headers(self, body: bytes) -> dict[str, str]:
        stamp = str(int(self._clock()))
        digest = hmac.new(self.secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}


class NotVerified(LocalSlackError):  # noqa: N818 - reads as what happened
    """The request URL does not echo the challenge."""


class HttpDelivery:
    """Send envelopes to ``url`` concurrently; own these requests."""

    def __init__(self, url: str, delivery: Delivery, signer: Signer, record: Recorder) -> None:
        try:
            checked = URL(url)
        except ValueError:
            checked = URL()
        if checked.scheme not in {"http", "https"} or not checked.host:
            raise LocalSlackError(f"{url!r} is not a request URL; use one such as http://127.0.0.1:3000/slack/events")
        self.url = url
        self._delivery = delivery
        self._signer = signer
        self._record = record
        self._verified = False
        self._challenge: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        timeout = aiohttp.ClientTimeout(total=delivery.schedule.ack_timeout_s)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)

    def send(self, envelope: Envelope) -> None:
        request = asyncio.create_task(self._send(envelope))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def close(self) -> None:
        tasks = (*self._requests, *([self._challenge] if self._challenge else []))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    async def verify(self) -> None:
        """Send the challenge unless the URL is verified; concurrent calls share one request. Raises NotVerified."""
        if self._verified:
            return
        if self._challenge is None or self._challenge.done():
            self._challenge = asyncio.create_task(self._send_challenge())
        await asyncio.shield(self._challenge)

    async def _send_challenge(self) -> None:
        challenge = secrets.token_urlsafe(32)
        payload = {"token": VERIFICATION_TOKEN, "challenge": challenge, "type": "url_verification"}
        problem = await self._problem_with(json.dumps(payload).encode(), challenge)
        self._record.note("url_verification", url=self.url, problem=problem or None)
        if problem:
            raise NotVerified(f"the request URL {self.url} is not verified: {problem}")
        self._verified = True

    async def _problem_with(self, body: bytes, challenge: str) -> str:
        try:
            async with self._post(body, {"Content-Type": _JSON}) as answer:
                if answer.status != 200:
                    return f"it responds to the challenge with HTTP {answer.status}"
                echoed = _echoed(answer.content_type, (await answer.read()).decode(errors="replace"))
                return "" if echoed == challenge else "it does not return the value of `challenge`"
        except TimeoutError:
            return "it does not respond in time"
        except aiohttp.ClientError as e:
            return f"it cannot be reached ({e})"

    async def _send(self, envelope: Envelope) -> None:
        # An event is JSON, a command a form, anything else a form with the JSON in `payload`.
        body, headers = json.dumps(envelope.payload), {"Content-Type": _JSON}
        is_command = envelope.type == "slash_commands"
        if envelope.type != "events_api":
            body, headers = urlencode(envelope.payload if is_command else {"payload": body}), {"Content-Type": _FORM}
        if envelope.attempt:
            headers |= {"X-Slack-Retry-Num": str(envelope.attempt), "X-Slack-Retry-Reason": envelope.reason}
        try:
            await self.verify()
            async with self._post(body.encode(), headers) as answer:
                text = (await answer.read()).decode(errors="replace")
        except (NotVerified, TimeoutError, aiohttp.ClientError) as e:
            reason = next((reason for kind, reason in _REASONS.items() if isinstance(e, kind)), "http_error")
            self._delivery.fail(envelope, reason)
            return
        if 200 <= answer.status < 300:
            payload = _json_in(answer.content_type, text)
            # A command may be answered with a plain text.
            is_text = is_command and answer.content_type == "text/plain" and text
            self._delivery.acknowledge(envelope.id, {"text": text} if is_text else payload)
            return
        self._record.note("refused", envelope=envelope.id, status=answer.status)
        reason = "http_error" if envelope.retried else f"http_{answer.status}"
        self._delivery.fail(envelope, reason, final=answer.headers.get("X-Slack-No-Retry") == "1")

    def _post(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.client._RequestContextManager:
        signed = {"User-Agent": _AGENT, "Accept": "*/*", **headers, **self._signer.headers(body)}
        # aiohttp also counts the redirect that exceeds the limit.
        return self._session.post(self.url, data=body, headers=signed, max_redirects=_FOLLOWED_REDIRECTS + 1)


def _json_in(content_type: str, text: str) -> object:
    """Return the JSON value of a response; None if it has none."""
    if content_type != _JSON or not text:
        return None
    try:
        return parse_json(text)
    except ValueError:
        return None


def _echoed(content_type: str, text: str) -> str:
    """Return the challenge from any of the three response forms that Slack accepts."""
    if content_type == _JSON:
        body = _json_in(content_type, text)
        return str(body.get("challenge", "")) if isinstance(body, dict) else str(body)
    if content_type == _FORM:
        return "".join(parse_qs(text).get("challenge", ()))
    return text.strip()
