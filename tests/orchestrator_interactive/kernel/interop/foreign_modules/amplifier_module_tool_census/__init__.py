"""A module for amplifier_core that lists the tools once every module of its session is mounted."""

from typing import Any

from amplifier_core import ModuleCoordinator, ToolResult

__amplifier_module_type__ = "tool"


class CensusTool:
    name = "census"
    description = "Lists the tools that were mounted when the session was ready."
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - as it is often written

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.tools: list[str] = []

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        return ToolResult(output=self.tools)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    await coordinator.mount("tools", CensusTool((config or {}).get("fails", False)), name="census")


async def on_session_ready(coordinator: ModuleCoordinator) -> None:
    tools = coordinator.mount_points["tools"]
    if tools["census"].fails:
        raise RuntimeError("Nobody may be counted.")
    tools["census"].tools = sorted(tools)
