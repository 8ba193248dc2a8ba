"""A tool module whose calls wait for a `ToolGate` of the test."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.tool_support import report_progress


class GatedTool:
    name = "run_tests"
    description = "Run the tests."
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - constant

    def __init__(self, port: int, *, side_effect_free: bool = False) -> None:
        self._port = port
        self.side_effect_free = side_effect_free

    def label(self, _input: dict[str, Any]) -> str:
        return "Running the tests"

    async def execute(self, _input: dict[str, Any]) -> ToolResult:
        report_progress("12 of 40 passed")
        await pass_gate(self._port)
        return ToolResult(output="all passed")


async def pass_gate(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await reader.read()
    finally:
        writer.close()


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> GatedTool:
    """`port` is the gate of its calls; the mount itself waits at `mount_port`, where that is given.

    `side_effect_free` says that a call changes nothing.
    """
    if config.get("mount_port"):
        await pass_gate(config["mount_port"])
    tool = GatedTool(config["port"], side_effect_free=config.get("side_effect_free", False))
    await coordinator.mount("tools", tool)
    return tool
