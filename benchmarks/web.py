"""Cost of a page through `web_fetch`, relative to a bare request of aiohttp."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from benchmarks.harness import Benchmark, Row, Side
from orchestrator_interactive.modules import tool_web
from orchestrator_interactive.testing import TestCoordinator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations

LIBRARIES = ("trafilatura", "protego")
INSTALL = "pip install 'amplifier-slack[web]'"
PARAGRAPH = "<p>A paragraph of {} has about as many words as one of a manual, and <a href='/more'>a link</a>.</p>"
BODY = "".join(PARAGRAPH.format(number) for number in range(60))
PAGES = {
    "text": ("text/plain", BODY),
    "page": ("text/html", f"<html><head><title>Page</title></head><body><article>{BODY}</article></body></html>"),
}


@asynccontextmanager
async def a_server() -> AsyncIterator[BaseTestServer]:
    async def answer(request: web.Request) -> web.Response:
        kind, text = PAGES[request.path.strip("/")]
        return web.Response(text=text, content_type=kind)

    app = web.Application()
    app.router.add_get("/{name}", answer)
    async with TestServer(app) as server:
        yield server


@asynccontextmanager
async def through_the_tool() -> AsyncIterator[Operations]:
    async with a_server() as server:
        coordinator = TestCoordinator()
        await tool_web.mount(coordinator, {"allow_private": True, "ports": [server.port], "robots": False})
        fetch = coordinator.get("tools", "web_fetch")

        async def fetched(name: str) -> None:
            result = await fetch.execute({"url": str(server.make_url(f"/{name}"))})
            if not result.success or "manual" not in result.output:
                raise ValueError(str(result))

        yield {name: partial(fetched, name) for name in PAGES}


@asynccontextmanager
async def bare(*, extracts: bool) -> AsyncIterator[Operations]:
    async with a_server() as server:

        async def fetched(name: str) -> None:
            async with aiohttp.ClientSession() as session, session.get(server.make_url(f"/{name}")) as response:
                text = await response.text()
            if extracts and name == "page":
                text = markdown(text) or ""
            if "manual" not in text:
                raise ValueError(name)

        yield {name: partial(fetched, name) for name in PAGES}


def markdown(page: str) -> str | None:
    """Return the text of a page. It blocks the event loop."""
    import trafilatura  # noqa: PLC0415 - an optional package

    text: str | None = trafilatura.extract(page, output_format="markdown", include_links=True, with_metadata=True)
    return text


BENCHMARK = Benchmark(
    title="Fetching a page",
    rows=(
        Row("text", "a text of 7 KB", unit="ms"),
        Row("page", "the same as HTML, read as Markdown", unit="ms"),
    ),
    sides=(
        Side("web_fetch", through_the_tool, LIBRARIES, INSTALL),
        Side("aiohttp and trafilatura", partial(bare, extracts=True), LIBRARIES, INSTALL),
        Side("aiohttp", partial(bare, extracts=False), ("aiohttp",)),
    ),
    base="aiohttp",
    notes=("The server is in the same process. The tool extracts the text in a process of its own.",),
)
