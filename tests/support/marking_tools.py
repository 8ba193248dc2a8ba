"""A tool module for tests: each call writes a line to a file.

`note` has side effects, `look` has none and may be repeated.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, ClassVar

from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult

MARKING_TOOLS = Path(__file__)


class MarkingTool:
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"mark": {"type": "string"}, "seconds": {"type": "number"}},
        "required": ["mark"],
    }

    def __init__(self, name: str, path: Path, *, side_effect_free: bool) -> None:
        self.name = name
        self.description = "Leave a mark."
        self.side_effect_free = side_effect_free
        self._path = path

    def label(self, asked: dict[str, Any]) -> str:
        return f"{self.name} {asked['mark']}"

    async def execute(self, asked: dict[str, Any]) -> ToolResult:
        """Write the line after half of the duration of the call."""
        half_s = asked.get("seconds", 0) / 2
        await asyncio.sleep(half_s)
        with self._path.open("a") as file:
            file.write(f"{self.name} {asked['mark']} {os.getpid()}\n")
        await asyncio.sleep(half_s)
        return ToolResult(output=f"done {asked['mark']}")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """`path` is the file."""
    path = Path(config["path"])
    for tool in (MarkingTool("note", path, side_effect_free=False), MarkingTool("look", path, side_effect_free=True)):
        await coordinator.mount("tools", tool, name=tool.name)
