"""Download from addresses that a model or a page chooses: only from public hosts, within limits of size and time.

Each host name is resolved once. All its addresses are checked, and the connection goes to these addresses, with the
host name in the TLS handshake and in the header. This is done again for each redirect.
"""

from __future__ import annotations

import asyncio
import re
import socket
import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from orchestrator_interactive.kernel.tool_support import report_progress
from orchestrator_interactive.modules.tool_web.addresses import refused_kind
from orchestrator_interactive.modules.tool_web.http_client import WebError, a_session, check_status, read_body, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from orchestrator_interactive.modules.tool_web.options import WebOptions

    # Returns the IP addresses of a host name; raises OSError or UnicodeError.
    Resolve = Callable[[str, int], Awaitable[list[str]]]
    # Raises `WebError` if an address must not be read.
    Check = Callable[[URL], Awaitable[None]]

log = structlog.get_logger(__name__)

MAX_REDIRECTS = 5
MAX_URL_CHARS = 4_000

_REDIRECTS = {301, 302, 303, 307, 308}
_INSPECTED_BYTES = 8_192
# Space, control characters, and those that programs read in different ways.
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]")
_MEDIA_TYPE = re.compile(r"\s*([\w.+-]{1,60}/[\w.+-]{1,80})\s*(?:;|$)")
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_TEXT_TYPES = {
    *("application/json", "application/xml", "application/javascript", "application/x-javascript", "application/sql"),
    *("application/yaml", "application/x-yaml", "application/toml", "application/x-ndjson", "application/x-sh"),
}
_HTML_TYPES = {"text/html", "application/xhtml+xml"}
_LOOKS_LIKE_HTML = re.compile(rb"(?is)\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype html|html|head|body)\b")
_MAGIC = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "a ZIP archive or an Office document",
    b"\xd0\xcf\x11\xe0": "an Office document",
    b"\x89PNG": "a PNG image",
    b"GIF8": "a GIF image",
    b"\xff\xd8\xff": "a JPEG image",
    b"RIFF": "an image, audio or video",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"\xfd7zXZ": "an xz archive",
    b"(\xb5/\xfd": "a Zstandard archive",
    b"\x7fELF": "a program",
    b"MZ\x90": "a program",
    b"\x00asm": "a program",
}
_UTF_BOMS = (b"\xff\xfe", b"\xfe\xff")

# The first one that matches applies.
_REASONS: dict[type[Exception], str] = {
    aiohttp.ClientConnectorCertificateError: "its certificate is not valid.",
    aiohttp.ClientSSLError: "the encrypted connection failed.",
    aiohttp.ClientConnectorError: "the host does not accept the connection.",
    aiohttp.InvalidURL: "the address is not valid.",
    aiohttp.ClientResponseError: "the answer is not valid HTTP, or its headers are too large.",
    aiohttp.ClientError: "the answer broke off. Try again later.",
    OSError: "the connection failed. Try again later.",
    zlib.error: "its compressed data are damaged.",
}


@dataclass(frozen=True, slots=True)
class Download:
    """A text as it was received. `kind` is its media type; `charset` is the declared one, or blank."""

    url: URL
    kind: str
    charset: str
    body: bytes
    is_cut: bool

    @property
    def is_html(self) -> bool:
        return self.kind in _HTML_TYPES


async def resolved(host: str, port: int) -> list[str]:
    """Return the addresses of a host, by the resolver of the system."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def parsed_url(text: str) -> URL:
    """Return an address that may be downloaded from: HTTP, with a host, and without a user name.

    Raises:
        WebError: another address.
    """
    if len(text) > MAX_URL_CHARS:
        raise WebError(f"The address is longer than {MAX_URL_CHARS:,} characters. Use a shorter one.")
    if _NOT_IN_URLS.search(text):
        raise WebError("The address contains spaces, backslashes or control characters. Encode them, such as %20.")
    try:
        url = URL(text)
        host, port, user = url.raw_host, url.port, url.raw_user or url.raw_password or "@" in url.raw_authority
    except ValueError as e:
        raise WebError(f"{shown(text)} is not a valid address. Give one such as https://example.com/page.") from e
    if url.scheme not in {"http", "https"} or not host:
        raise WebError(f"Only addresses that begin with http:// or https:// can be fetched, not {shown(text)}.")
    if user:
        raise WebError("The address contains a user name or password. Leave it out: credentials are never sent.")
    if not port or host.strip(".") == "":
        raise WebError(f"{shown(text)} is not a valid address. Give one such as https://example.com/page.")
    return url.with_fragment(None)


class Downloader:
    """Downloads texts. `resolve` replaces the resolver of the system."""

    def __init__(self, options: WebOptions, resolve: Resolve = resolved) -> None:
        self._options = options
        self._resolve = resolve

    async def get(self, url: URL, check: Check | None = None, max_bytes: int | None = None) -> Download:
        """Download a text and follow redirects; `check` is called for each address.

        With `max_bytes`, the body may be of any type. The caller limits the time.

        Raises:
            WebError: it is refused, cannot be reached, or is not a text.
        """
        for _ in range(MAX_REDIRECTS + 1):
            self._check_place(url)
            if check is not None:
                await check(url)
            report_progress(f"Fetching {url.raw_host}")
            try:
                async with self._response(url) as response:
                    if response.status not in _REDIRECTS:
                        return await self._read(response, url, max_bytes)
                    target = redirect_target(url, response.headers.get("Location", "").strip())
            except (aiohttp.ClientError, OSError, ValueError, zlib.error) as e:
                raise WebError(f"{shown(url)} cannot be read: {_reason(e)}") from e
            url = target
        raise WebError(f"There were more than {MAX_REDIRECTS} redirects; the last one leads to {shown(url)}.")

    def _check_place(self, url: URL) -> None:
        host, options = (url.raw_host or "").rstrip("."), self._options
        if url.port not in options.ports:
            allowed = ", ".join(map(str, sorted(options.ports)))
            raise WebError(f"Port {url.port} of {shown(host)} is not allowed here; these are: {allowed}.")
        if _is_in(host, options.deny):
            raise WebError(f"{shown(host)} is not allowed here. Use another source.")
        if options.allow is not None and not _is_in(host, options.allow):
            raise WebError(f"{shown(host)} is not allowed here; these are: {', '.join(sorted(options.allow))}.")

    async def _addresses(self, url: URL) -> list[str]:
        host, port = url.raw_host or "", url.port or 0
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as e:
            raise WebError(f"The host {shown(host)} is not known. Check the address.") from e
        if not found:
            raise WebError(f"The host {shown(host)} has no address. Check it.")
        for address in found:
            if kind := refused_kind(address, allow_private=self._options.allow_private):
                log.warning("web.address_refused", host=shown(host), address=address, kind=kind)
                raise WebError(f"{shown(host)} is not a public host (its address is {kind}), so it is not allowed.")
        return found

    @asynccontextmanager
    async def _response(self, url: URL) -> AsyncIterator[aiohttp.ClientResponse]:
        pinned = _Pinned(await self._addresses(url))
        connector = aiohttp.TCPConnector(resolver=pinned, use_dns_cache=False, force_close=True)
        headers = {
            "User-Agent": self._options.user_agent,
            "Accept": "text/markdown, text/html;q=0.9, text/*;q=0.8, */*;q=0.5",
        }
        async with a_session(connector, headers) as session, session.get(url, allow_redirects=False) as response:
            try:
                yield response
            finally:
                response.close()

    async def _read(self, response: aiohttp.ClientResponse, url: URL, max_bytes: int | None) -> Download:
        check_status(response, shown(url))
        declared = response.headers.get("Content-Type", "")
        media, charset = _MEDIA_TYPE.match(declared), _CHARSET.search(declared)
        kind = media[1].lower() if media else ""
        is_unknown = kind in {"", "application/octet-stream", "binary/octet-stream"}
        if max_bytes is None and not is_unknown and not _is_text(kind):
            size = f" of {length:,} bytes" if (length := response.content_length) else ""
            raise WebError(f"{shown(url)} is a file{size} of type {kind}. It cannot be read: only text can.")
        body, is_cut = await read_body(response, max_bytes or self._options.max_bytes, url.raw_host or "")
        if max_bytes is None and (binary := _binary(body)):
            size = f"{'more than ' * is_cut}{len(body):,} bytes"
            raise WebError(f"{shown(url)} is {binary} of {size}. It cannot be read: only text can.")
        if is_unknown:
            kind = "text/html" if _LOOKS_LIKE_HTML.match(body[:_INSPECTED_BYTES]) else "text/plain"
        return Download(url, kind, charset[1] if charset else "", body, is_cut)


class _Pinned(AbstractResolver):
    """Resolves every name to addresses that were checked before."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_UNSPEC) -> list[ResolveResult]:
        del family
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def redirect_target(url: URL, location: str) -> URL:
    """Return the address to which another one redirects.

    Raises:
        WebError: it is invalid, cannot be downloaded from, or gives up encryption.
    """
    try:
        joined = "" if _NOT_IN_URLS.search(location) or not location else str(url.join(URL(location)))
    except ValueError:
        joined = ""
    if not joined:
        raise WebError(f"{shown(url)} redirects to an invalid address.")
    target = parsed_url(joined)
    if url.scheme == "https" and target.scheme != "https":
        hint = "If you want to read it without encryption, fetch that address."
        raise WebError(f"{shown(url)} redirects to {shown(target)}, which is not encrypted. {hint}")
    return target


def _is_in(host: str, hosts: frozenset[str]) -> bool:
    return any(host == each or host.endswith(f".{each}") for each in hosts)


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind in _HTML_TYPES | _TEXT_TYPES or kind.endswith(("+json", "+xml", "+yaml"))


def _binary(body: bytes) -> str:
    """Return the name of a binary format by the first bytes of a body; blank: a text."""
    for start, name in _MAGIC.items():
        if body.startswith(start):
            return name
    head = body[:_INSPECTED_BYTES]
    return "a binary file" if b"\0" in head and not head.startswith(_UTF_BOMS) else ""


def _reason(error: Exception) -> str:
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    return f"{error}."
