"""A web site on this machine, and `web_fetch` for it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from web_site import WebSite, web_site, web_tools

from orchestrator_interactive.kernel import ToolResult

Fetch = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
async def site() -> AsyncIterator[WebSite]:
    async with web_site() as site:
        yield site


@pytest.fixture
async def fetch(site: WebSite) -> Fetch:
    """Fetch a path of the site; keyword arguments are options of the module, or `offset`, `max_chars` and `raw`."""
    mounted: dict[str, Any] = {}

    async def fetch(address: str, **given: Any) -> ToolResult:
        arguments = {name: given.pop(name) for name in ("offset", "max_chars", "raw") if name in given}
        if given or not mounted:
            mounted.update(await web_tools(**{"allow_private": True, "ports": [site.port], "robots": False, **given}))
        url = site.url + address if address.startswith("/") else address
        result: ToolResult = await mounted["web_fetch"].execute({"url": url, **arguments})
        return result

    return fetch
