"""Sessions with mounted servers, and a server over HTTP."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from mcp_hosts import Host, HttpServer

from orchestrator_interactive.kernel import ModuleCoordinator
from orchestrator_interactive.modules import tool_mcp


@pytest.fixture
async def mounted(make_coordinator: Callable[..., ModuleCoordinator]) -> AsyncIterator[Callable[..., Any]]:
    """`await mounted(servers, **options)` mounts them in a new session; `close` of the result ends it."""
    async with AsyncExitStack() as stack:

        async def mount(servers: dict[str, Any], **options: Any) -> Host:
            host = Host(make_coordinator())
            close = await tool_mcp.mount(host.coordinator, {"servers": servers, **options})
            stack.push_async_callback(close)
            host.close = close
            return host

        yield mount


@pytest.fixture
async def http_server() -> AsyncIterator[HttpServer]:
    async with HttpServer() as server:
        yield server
