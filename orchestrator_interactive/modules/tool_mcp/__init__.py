"""`tool-mcp`: the tools of servers of the Model Context Protocol, over stdio and streamable HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.tool_mcp.options import McpOptions, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["McpOptions", "ServerOptions", "mount"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    """Connect to the servers, and mount their tools as `SERVER__TOOL`. Returns a function that ends their use.

    A server that cannot be used now is left out with a warning; the next session tries it again. Servers with resources
    or prompts add `mcp_list_resources`, `mcp_read_resource` and `mcp_get_prompt`.

    It uses these capabilities, if they exist: `people.answer` asks one person in private; `people.connect` shows one
    person a link for a login, and `people.begin` notes that a call which waited for it begins; `credentials.load`,
    `.save`, `.begin` and `.result` keep the accounts of people.

    Raises:
        ValueError: an unknown option, a value out of range, or the SDK is not installed.
    """
    options = validate(McpOptions, config, "tool-mcp")
    try:
        from orchestrator_interactive.modules.tool_mcp.session import mount_servers  # noqa: PLC0415 - an extra
    except ImportError as e:
        raise ValueError("tool-mcp: mcp is not installed. Install it with `pip install 'amplifier-slack[mcp]'`.") from e
    return await mount_servers(to_local_coordinator(coordinator), options)
