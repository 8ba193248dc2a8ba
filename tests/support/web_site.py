"""A web site on this machine that can answer with any bytes, and the tools of `tool-web` for it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.modules import tool_web

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def http(body: str | bytes = b"", kind: str | None = "text/html", status: str = "200 OK", **headers: str) -> bytes:
    """Return a response; an underscore in the name of a header is a hyphen."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"Content-Type: {kind}"] if kind is not None else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + data


class WebSite:
    """`pages` are the answers by path; `requests` are the paths asked for, `heads` the requests themselves."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.heads: list[str] = []
        self.closed = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._answer(reader, writer)
        self.closed.set()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self.tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        path = head.split(" ", 2)[1]
        self.requests.append(path)
        answer = self.pages.get(path, http("Nothing here.", "text/plain", "404 Not Found"))
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return
        # Stop when the other side closes the connection.
        gone, answering = asyncio.ensure_future(reader.read()), asyncio.ensure_future(answer(writer))
        try:
            await asyncio.wait([gone, answering], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            answering.cancel()
            await asyncio.gather(gone, answering, return_exceptions=True)


@asynccontextmanager
async def web_site(host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[WebSite]:
    site = WebSite()
    server = await asyncio.start_server(site.answer, host, port, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in site.tasks:
            task.cancel()
        await asyncio.gather(*site.tasks, return_exceptions=True)


async def web_tools(**config: Any) -> dict[str, Any]:
    """Return the mounted tools, by their names."""
    coordinator = AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator
    await tool_web.mount(coordinator, config)
    return dict(coordinator.get("tools"))
