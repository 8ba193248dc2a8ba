"""A request URL of no framework: it writes down what Slack sends and answers as a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[], web.Response] | asyncio.Event


@dataclass(frozen=True)
class Received:
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Endpoint:
    """Takes the next of `answers` for each request, 200 when there are none; an event is waited for.

    It echoes every challenge, unless `echo` is replaced.
    """

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque)
    echo: Callable[[str], web.Response] = lambda challenge: web.Response(text=challenge)
    challenges: list[Received] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)
    _heard: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def received(self, count: int) -> list[Received]:
        async with asyncio.timeout(50), self._heard:
            await self._heard.wait_for(lambda: len(self.requests) >= count)
            return self.requests

    async def handle(self, request: web.Request) -> web.StreamResponse:
        received = Received(request.headers.copy(), await request.read())
        if b'"url_verification"' in received.body:
            self.challenges.append(received)
            return self.echo(received.json["challenge"])
        async with self._heard:
            self.requests.append(received)
            self._heard.notify_all()
        answer = self.answers.popleft() if self.answers else web.Response
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return web.Response()
        return answer()


def status(code: int, **headers: str) -> Answer:
    """Return an answer that is only a status, with these headers."""
    return lambda: web.Response(status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})


@asynccontextmanager
async def serving(handle: Callable[[web.Request], Awaitable[web.StreamResponse]], port: int = 0) -> AsyncIterator[str]:
    """Serve one handler on this machine; gives the URL."""
    app = web.Application()
    app.router.add_route("*", "/slack/events", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def endpoint(port: int = 0) -> AsyncIterator[Endpoint]:
    there = Endpoint()
    async with serving(there.handle, port) as url:
        there.url = url
        yield there
