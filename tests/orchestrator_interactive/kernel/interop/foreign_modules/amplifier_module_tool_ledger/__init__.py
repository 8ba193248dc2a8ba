"""A tool for amplifier_core that returns amplifier_core's `ToolResult` in all its forms."""

from typing import Any

from amplifier_core import ImageBlock, ModuleCoordinator, TextBlock, ToolResult

__amplifier_module_type__ = "tool"

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class LedgerTool:
    def __init__(self) -> None:
        self.entries: list[str] = []

    @property
    def name(self) -> str:
        return "ledger"

    @property
    def description(self) -> str:
        return "Keeps entries: `add` one, `list` them, or see a `picture` of them."

    @property
    def input_schema(self) -> dict[str, Any]:
        action = {"type": "string", "enum": ["add", "list", "picture"]}
        return {"type": "object", "properties": {"action": action, "entry": {"type": "string"}}, "required": ["action"]}

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        match input:
            case {"action": "add", "entry": str(entry)}:
                self.entries.append(entry)
                return ToolResult(success=True, output={"entries": self.entries, "last": None})
            case {"action": "list"}:
                return ToolResult(output="\n".join(self.entries))
            case {"action": "picture"}:
                source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
                return ToolResult(content=[TextBlock(text="The ledger:"), ImageBlock(source=source)])
            case _:
                return ToolResult(success=False, error={"message": f"I cannot do {input.get('action')!r}."})


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> LedgerTool:
    tool = LedgerTool()
    await coordinator.mount("tools", tool, name=tool.name)
    return tool
