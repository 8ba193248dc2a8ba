"""A tool written against amplifier_core."""

from typing import Any

from amplifier_core import ModuleCoordinator, ToolResult


class UpperTool:
    @property
    def name(self) -> str:
        return "upper"

    @property
    def description(self) -> str:
        return "Writes a text in capitals."

    @property
    def input_schema(self) -> dict:
        return {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        text = input.get("text")
        if not isinstance(text, str):
            return ToolResult(success=False, error={"message": "text is required"})
        return ToolResult(success=True, output=text.upper())


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None):
    tool = UpperTool()
    await coordinator.mount("tools", tool, name=tool.name)
