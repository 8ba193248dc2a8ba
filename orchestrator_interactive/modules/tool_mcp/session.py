"""Mount the tools of all servers in one session."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog
from mcp.shared.exceptions import MCPError

from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.modules.tool_mcp.connection import ConnectionLost, Servers, ServerUnavailable
from orchestrator_interactive.modules.tool_mcp.listing import Listing, offered_tools
from orchestrator_interactive.modules.tool_mcp.results import one_line
from orchestrator_interactive.modules.tool_mcp.tools import (
    Access,
    ConnectTool,
    GetPrompt,
    ListResources,
    ReadResource,
    ServerTool,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.modules.tool_mcp.options import McpOptions

log = structlog.get_logger(__name__)

_PROBLEM_CHARS = 500
# The latest listings of servers with accounts, by the options of the server.
_known_listings: dict[str, Listing] = {}


async def mount_servers(coordinator: ModuleCoordinator, options: McpOptions) -> Callable[[], Awaitable[None]]:
    """Mount the tools of all servers; return a function that ends their use."""
    servers = Servers()
    accesses = [Access(name, options, coordinator, servers) for name in options.servers]
    session = _Session(coordinator)
    try:
        for access, listing in zip(accesses, await asyncio.gather(*map(_listing_of, accesses)), strict=True):
            await session.add(access, listing)
        await session.add_shared()
    except BaseException:
        await servers.aclose()
        raise
    return servers.aclose


class _Session:
    """The servers of one session and their listings."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._offers: dict[str, tuple[Access, Listing]] = {}

    async def add(self, access: Access, listing: Listing | None) -> int:
        """Mount the tools of a server, or a tool that connects an account; return how many."""
        if listing is None:
            if access.server_options.is_per_person:
                tool = ConnectTool(access, self._on_listed)
                await self._coordinator.mount("tools", tool, name=tool.name)
            return 0
        self._offers[access.name] = access, listing
        if access.server_options.is_per_person:
            access.on_listed = partial(_keep, access)
        taken = self._coordinator.get("tools")
        found = offered_tools(access.name, access.server_options, listing, access.options.max_tools, taken)
        for each in found:
            await self._coordinator.mount("tools", ServerTool(access, each), name=each.full_name)
        return len(found)

    async def _on_listed(self, access: Access, listing: Listing) -> int:
        await _keep(access, listing)
        connect = f"{access.name}__connect"
        if connect in self._coordinator.get("tools"):
            await self._coordinator.unmount("tools", connect)
        count = await self.add(access, listing)
        await self.add_shared()
        return count

    async def add_shared(self) -> None:
        """Mount the tools for resources and prompts, where servers have them."""
        with_resources = {name: access for name, (access, found) in self._offers.items() if found.has_resources}
        with_prompts = {name: access for name, (access, found) in self._offers.items() if found.prompts}
        for kind, having in (
            (ListResources, with_resources),
            (ReadResource, with_resources),
            (GetPrompt, with_prompts),
        ):
            if having:
                await self._coordinator.mount("tools", kind(having), name=kind.name)


async def _keep(access: Access, listing: Listing) -> None:
    """Keep the listing of a server with accounts."""
    key = access.server_options.model_dump_json()
    if _known_listings.get(key) != listing:
        _known_listings[key] = listing
        await access.store_listing(listing)


async def _listing_of(access: Access) -> Listing | None:
    """Return the listing of a server; `None`, with a warning: it is not known now."""
    problem = "It sent an answer that is not valid."
    with ErrorBoundary(log, "mcp.listing_failed", server=access.name):
        try:
            if access.server_options.is_per_person:
                known = _known_listings.get(access.server_options.model_dump_json())
                if (known := known or await access.stored_listing()) is not None:
                    return known
            return await access.listing()
        except ConnectionLost:
            problem = "It ended."
        except (ServerUnavailable, MCPError) as e:
            problem = str(e)
    what_to_do = "check its command or URL; the next session tries it again"
    said = one_line(problem, _PROBLEM_CHARS)
    log.warning("mcp.server_left_out", server=access.name, problem=said, what_to_do=what_to_do)
    return None
