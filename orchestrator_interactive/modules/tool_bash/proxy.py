"""The way of a sandbox to the network: a proxy that knows the allowed hosts, and adds their credentials.

A sandbox reaches it by a Unix socket only. Requests to a host with credentials are made over plain HTTP inside of the
sandbox, `http://HOST/…`; the proxy makes them over HTTPS, with the credentials that no process in the sandbox sees.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog
from pydantic import Field, SecretStr, field_validator

from orchestrator_interactive.config import Options
from orchestrator_interactive.modules.tool_web.addresses import refused_kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

log = structlog.get_logger(__name__)

_HEAD_BYTES = 64 * 1024
_CONNECTED_WITHIN_S = 10.0
_IDLE_S = 300.0
_PIECE_BYTES = 64 * 1024
_HTTP, _HTTPS = 80, 443
_HOST = re.compile(r"(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_TOKEN = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Headers of one connection, and those that the proxy decides.
_DROPPED = (b"connection", b"proxy-", b"keep-alive", b"host", b"upgrade", b"te", b"expect")


class NetworkOptions(Options):
    """Hosts that commands may reach.

    Args:
        allow: names such as `pypi.org` or `*.pypi.org`, at the ports 80 and 443.
        credentials: headers by host, such as `{api.github.com: {Authorization: "Bearer ${GITHUB_TOKEN}"}}`. Inside the
            sandbox, requests to it are written as `http://api.github.com/…`.
        allow_private: whether an allowed name may have an address in a private network.
        ports: by host, another port than 443 and 80.
    """

    allow: tuple[str, ...] = Field(min_length=1)
    credentials: dict[str, dict[str, SecretStr]] = Field(default_factory=dict)
    allow_private: bool = False
    ports: dict[str, int] = Field(default_factory=dict)

    @field_validator("allow")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST.fullmatch(name.lower()):
                raise ValueError(f"{name!r} is not the name of a host, such as pypi.org or *.pypi.org")
        return tuple(name.lower() for name in names)

    def allows(self, host: str) -> bool:
        return host in self.credentials or any(fnmatchcase(host, each) for each in self.allow)


class Refused(Exception):  # noqa: N818 - an answer to a client
    """A request is refused; the message is for the model."""


@asynccontextmanager
async def serving_proxy(options: NetworkOptions, path: Path) -> AsyncIterator[None]:
    """Serve a sandbox at a Unix socket while the context is open."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        serving.add(task)
        try:
            await _serve(options, reader, writer)
        finally:
            serving.discard(task)
            writer.close()

    server = await asyncio.start_unix_server(serve, path, limit=_HEAD_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(list(serving), timeout=1)


async def _serve(options: NetworkOptions, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(_CONNECTED_WITHIN_S):
            head = await reader.readuntil(b"\r\n\r\n")
        line, *headers = head[:-4].split(b"\r\n")
        async with AsyncExitStack() as stack:
            to_server, from_server = await _begin(options, line, headers, writer)
            stack.callback(to_server.close)
            await _copy_both(reader, writer, from_server, to_server)
    except Refused as e:
        text = f"{e}\n".encode()
        head = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: "
        with suppress(OSError):
            writer.write(head + str(len(text)).encode() + b"\r\n\r\n" + text)
            await writer.drain()
    except (
        OSError,
        TimeoutError,
        asyncio.IncompleteReadError,
        asyncio.LimitOverrunError,
        ssl.SSLError,
        ValueError,
    ) as e:
        log.info("sandbox.request_failed", problem=str(e) or type(e).__name__)
        with suppress(OSError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()


async def _begin(
    options: NetworkOptions, line: bytes, headers: list[bytes], writer: asyncio.StreamWriter
) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
    """Connect to the server of a request, and send its head.

    Raises:
        Refused: its host is not allowed, or it is malformed.
    """
    parts = line.split(b" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or parts[2] not in {b"HTTP/1.1", b"HTTP/1.0"}:
        raise Refused("The request is malformed.")
    method, target, _ = parts
    if any(b in line for b in (b"\0", b"\n", b"\r")) or any(b"\n" in each or b"\r" in each for each in headers):
        raise Refused("The request is malformed.")
    if method == b"CONNECT":
        host, _, port = target.decode("ascii", "strict").rpartition(":")
        host = _checked(options, host, int(port) if port.isdigit() else 0, _HTTPS)
        if host in options.credentials:
            raise Refused(f"Write http://{host}/… instead of https: the credentials are added on the way.")
        to_server, from_server = await _connected(options, host, options.ports.get(host, _HTTPS), None)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        return from_server, to_server
    address = urlsplit(target.decode("ascii", "strict"))
    if address.scheme != "http" or not address.hostname or address.username is not None:
        raise Refused("The address must be http://HOST/…")
    host = _checked(options, address.hostname, address.port or _HTTP, _HTTP)
    secrets = options.credentials.get(host)
    added = {name.lower().encode() for name in secrets or ()}
    kept = [each for each in headers if not _is_dropped(each, added)]
    to_port = options.ports.get(host, _HTTP if secrets is None else _HTTPS)
    tls = None if secrets is None else ssl.create_default_context()
    reader, server = await _connected(options, host, to_port, tls)
    path = target[target.index(b"/", len(b"http://")) :] if b"/" in target[len(b"http://") :] else b"/"
    own = [b"Host: " + host.encode(), b"Connection: close"]
    own += [f"{name}: {value.get_secret_value()}".encode() for name, value in (secrets or {}).items()]
    server.write(b"\r\n".join([method + b" " + path + b" HTTP/1.1", *own, *kept]) + b"\r\n\r\n")
    await server.drain()
    return server, reader


def _is_dropped(header: bytes, added: set[bytes]) -> bool:
    name, separator, _ = header.partition(b":")
    if not separator or not _TOKEN.fullmatch(name):
        raise Refused("A header is malformed.")
    return name.lower() in added or any(
        name.lower().startswith(each) if each.endswith(b"-") else name.lower() == each for each in _DROPPED
    )


def _checked(options: NetworkOptions, host: str, port: int, expected: int) -> str:
    host = host.lower().rstrip(".")
    if not _HOST.fullmatch(host) or not options.allows(host):
        raise Refused(f"{host} is not an allowed host. Allowed: {', '.join((*options.allow, *options.credentials))}.")
    if port not in {expected, options.ports.get(host, expected)}:
        raise Refused(f"Port {port} is not allowed; use {expected}.")
    return host


async def _connected(
    options: NetworkOptions, host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Resolve a name once, check its addresses, and connect to one of exactly these."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_CONNECTED_WITHIN_S):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for each in addresses:
            if kind := refused_kind(each, allow_private=options.allow_private):
                raise Refused(f"{host} has an address that is {kind}, which is not allowed.")
        for address in addresses:
            with suppress(OSError):
                server_hostname = host if tls is not None else None
                return await asyncio.open_connection(address, port, ssl=tls, server_hostname=server_hostname)
    raise OSError(f"no connection to {host}")


async def _copy_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    from_server: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
) -> None:
    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                async with asyncio.timeout(_IDLE_S):
                    piece = await source.read(_PIECE_BYTES)
                if not piece:
                    break
                target.write(piece)
                await target.drain()
            if target.can_write_eof():
                target.write_eof()

    up = asyncio.create_task(copy(reader, to_server))
    try:
        await copy(from_server, writer)
    finally:
        up.cancel()
        await asyncio.wait([up])
