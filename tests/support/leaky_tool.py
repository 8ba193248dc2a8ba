"""A tool module that reveals secrets in every way that a tool can: see `test_secrets.py`."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.tool_support import report_progress


class LeakyTool:
    name = "leaky"
    description = "Tell everything."
    input_schema: dict[str, Any] = {"type": "object", "properties": {"how": {"type": "string"}}}  # noqa: RUF012 - constant

    def label(self, _input: dict[str, Any]) -> str:
        return "Asking with our-own-password"

    async def execute(self, given: dict[str, Any]) -> ToolResult:
        report_progress("sent our-own-password")
        await asyncio.sleep(0)
        if given["how"] == "raise":
            raise RuntimeError("401 for our-own-password, xoxb-of-somebody")
        output = {"env": "our-own-password", "docs": "use xoxb-of-somebody"}
        return ToolResult(success=given["how"] == "return", output=output, error={"message": str(output)})


async def mount(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> LeakyTool:
    tool = LeakyTool()
    await coordinator.mount("tools", tool)
    return tool
