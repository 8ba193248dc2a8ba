"""The registry of tools, by name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts.protocols import Tool
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.registries.agent_tool import call_agent
from orchestrator_interactive.registries.errors import AlreadyRegistered, not_registered
from orchestrator_interactive.registries.function_tool import FunctionTool, ToolFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator


class ToolRegistry:
    """Tools by name. Each registry has its own result caches.

    Args:
        tools: tools to register.
        clock: returns a monotonic time in seconds; the age of cached results depends on it.
    """

    def __init__(self, tools: Iterable[Tool | ToolFunction] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.register(each)

    def register(self, tool: Tool | ToolFunction) -> None:
        """Add a tool of the contracts, or a function with the decorator `@tool`.

        Raises:
            AlreadyRegistered: its name is taken.
            NotRegistered: one of its effects is not registered.
            TypeError: it is not a tool.
        """
        made = FunctionTool(tool, self._clock) if isinstance(tool, ToolFunction) else tool
        if not isinstance(made, Tool) or not isinstance(made.name, str):
            raise TypeError(
                f"{tool!r} is no tool: give a tool of the contracts, or put @tool(ToolConfig(…)) before it."
            )
        if made.name in self._tools:
            raise AlreadyRegistered(f"There is a tool '{made.name}' already: give this one another name.")
        self._tools[made.name] = made

    def get_tool_by_name(self, name: str) -> Tool:
        """Return the tool with this name.

        Raises:
            NotRegistered: there is none; the message lists the registered names.
        """
        if name not in self._tools:
            raise not_registered("tool", name, self._tools)
        return self._tools[name]

    def get_tools(self) -> list[Tool]:
        """Return all tools in order of registration."""
        return list(self._tools.values())

    def list_tools(self) -> dict[str, str]:
        """Return the descriptions of all tools, by name."""
        return {name: tool.description for name, tool in self._tools.items()}


# The shared registry.
tool_registry = ToolRegistry([call_agent])


async def mount_tools(coordinator: ModuleCoordinator, names: Iterable[str], registry: ToolRegistry) -> None:
    """Mount tools of a registry into a session, which becomes part of their `ToolContext`.

    Raises:
        NotRegistered: a name is unknown; no tool is mounted.
    """
    coordinator = to_local_coordinator(coordinator)
    for each in [registry.get_tool_by_name(name) for name in names]:
        await coordinator.mount("tools", each.mounted(coordinator) if isinstance(each, FunctionTool) else each)
