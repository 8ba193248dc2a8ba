"""`tool-dice`: rolls a die."""

import random
from typing import Any

from pydantic import Field

from orchestrator_interactive.config import Options, schema, validate
from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult


class DiceOptions(Options):
    most_sides: int = 20


class DiceInput(Options):
    sides: int = Field(default=6, ge=2, description="The number of sides of the die.")


class DiceTool:
    name = "roll_dice"
    description = "Roll a die."  # the model reads it, and decides when to call the tool
    input_schema = schema(DiceInput)
    side_effect_free = True

    def __init__(self, options: DiceOptions) -> None:
        self._most_sides = options.most_sides

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        try:
            sides = validate(DiceInput, input, self.name).sides
        except ValueError as e:
            return ToolResult(success=False, error={"message": str(e)})
        if sides > self._most_sides:
            return ToolResult(success=False, error={"message": f"A die has at most {self._most_sides} sides here."})
        return ToolResult(output=f"{random.randint(1, sides)} of {sides}")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> DiceTool:
    tool = DiceTool(validate(DiceOptions, config, "tool-dice"))
    await coordinator.mount("tools", tool)
    return tool
