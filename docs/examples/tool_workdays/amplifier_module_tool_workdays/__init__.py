"""`tool-workdays`: counts working days, which models do badly."""

from datetime import date, timedelta
from typing import Any

from pydantic import Field

from orchestrator_interactive.config import Options, read, schema
from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.interop import at_home


class WorkdaysOptions(Options):
    holidays: frozenset[date] = frozenset()


class WorkdaysInput(Options):
    start: date = Field(description="The day to count from, as YYYY-MM-DD.")
    days: int = Field(ge=1, le=1000, description="How many working days later.")


class WorkdaysTool:
    name = "working_days"
    description = "Say which date is some working days after another. Weekends and the company's holidays do not count."
    input_schema = schema(WorkdaysInput)
    side_effect_free = True

    def __init__(self, options: WorkdaysOptions) -> None:
        self._holidays = options.holidays

    def label(self, input: dict[str, Any]) -> str:
        return f"Counting {input.get('days')} working days"

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        try:
            wanted = read(WorkdaysInput, input, self.name)
            day, left = wanted.start, wanted.days
            while left:
                day += timedelta(days=1)
                if day.weekday() < 5 and day not in self._holidays:  # Monday is 0
                    left -= 1
        except (ValueError, OverflowError) as e:
            return ToolResult(success=False, error={"message": str(e)})
        return ToolResult(output=f"{day:%A}, {day}")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> WorkdaysTool:
    tool = WorkdaysTool(read(WorkdaysOptions, config, "tool-workdays"))
    await at_home(coordinator).mount("tools", tool)
    return tool
