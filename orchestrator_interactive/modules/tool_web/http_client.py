"""HTTP sessions, and bodies within limits."""

from __future__ import annotations

import re
import zlib
from http.client import responses
from typing import TYPE_CHECKING, Any

import aiohttp

from orchestrator_interactive.kernel.tool_support import report_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN_URL_CHARS = 300
_PIECE_BYTES = 65_536
_REPORTED_BYTES = 1_000_000


class WebError(Exception):
    """A page cannot be had. The message gives the reason and the remedy; `status` is the HTTP status, or 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def shown(url: object) -> str:
    """Return an address for a sentence: in one line of printable characters."""
    text = "".join(sign if sign.isprintable() else "?" for sign in str(url))
    return text if len(text) <= _SHOWN_URL_CHARS else f"{text[:_SHOWN_URL_CHARS]}…"


def a_session(connector: aiohttp.BaseConnector | None, headers: dict[str, str]) -> aiohttp.ClientSession:
    """Return a session without cookies, proxies, credentials, and decompression; see `read_body`."""
    return aiohttp.ClientSession(
        connector=connector,
        headers={"Accept-Encoding": "gzip", **headers},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None),
    )


def check_status(response: aiohttp.ClientResponse, subject: str) -> None:
    """Refuse a response that is no success.

    Raises:
        WebError: with the status.
    """
    status = response.status
    if 200 <= status < 300:
        return
    name = f" ({responses[status]})" if status in responses else ""
    advice = {
        401: "It needs a login, which this tool does not have.",
        403: "It refuses this request.",
        404: "Check the address.",
        410: "The page was removed.",
        429: f"It asks for fewer requests. Try again {retry_time(response)}.",
    }.get(status, "Try again later." if status >= 500 else "")
    raise WebError(f"{subject} answered with the status {status}{name}. {advice}".strip(), status)


def retry_time(response: aiohttp.ClientResponse) -> str:
    """Return when to repeat a request."""
    wait = response.headers.get("Retry-After", "")
    return f"in {wait} seconds" if re.fullmatch(r"[0-9]{1,5}", wait) else "later"


async def read_body(response: aiohttp.ClientResponse, max_bytes: int, host: str = "") -> tuple[bytes, bool]:
    """Read and decompress at most `max_bytes` of a body; the second value is whether there is more.

    Raises:
        ValueError: a compression other than gzip.
        zlib.error: the compressed data are damaged.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        raise ValueError(f"its compression is {shown(encoding)}, and only gzip was asked for")
    unzip = zlib.decompressobj(31) if "gzip" in encoding else None
    body, received, reported = bytearray(), 0, 0
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        received += len(piece)
        for part in _inflated(unzip, piece) if unzip is not None else (piece,):
            body += part
            if len(body) > max_bytes:
                return bytes(body[:max_bytes]), True
        if received > max_bytes:
            return bytes(body), True
        if host and len(body) - reported >= _REPORTED_BYTES:
            reported = len(body)
            report_progress(f"Fetching {host}: {reported / 1_000_000:.1f} MB")
    return bytes(body), False


def _inflated(unzip: Any, piece: bytes) -> Iterator[bytes]:
    while piece and not unzip.eof:
        yield unzip.decompress(piece, _PIECE_BYTES)
        piece = unzip.unconsumed_tail
