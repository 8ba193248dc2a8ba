"""`tool-workdays`: adds working days to a date."""

from datetime import date, timedelta
from typing import Any

from pydantic import Field

from orchestrator_interactive.config import Options, schema, validate
from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.interop import to_local_coordinator


class WorkdaysOptions(Options):
    holidays: frozenset[date] = frozenset()


class WorkdaysInput(Options):
    start: date = Field(description="The day to count from, as YYYY-MM-DD.")
    days: int = Field(ge=1, le=1000, description="The number of working days to add.")


class WorkdaysTool:
    name = "working_days"
    description = "Add working days to a date. Weekends and company holidays do not count."
    input_schema = schema(WorkdaysInput)
    side_effect_free = True

    def __init__(self, options: WorkdaysOptions) -> None:
        self._holidays = options.holidays

    def label(self, input: dict[str, Any]) -> str:
        return f"Counting {input.get('days')} working days"

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        try:
            arguments = validate(WorkdaysInput, input, self.name)
            day, remaining = arguments.start, arguments.days
            while remaining:
                day += timedelta(days=1)
                if day.weekday() < 5 and day not in self._holidays:  # Monday is 0, Friday is 4
                    remaining -= 1
        except (ValueError, OverflowError) as e:
            return ToolResult(success=False, error={"message": str(e)})
        return ToolResult(output=f"{day:%A}, {day}")


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> WorkdaysTool:
    tool = WorkdaysTool(validate(WorkdaysOptions, config, "tool-workdays"))
    await to_local_coordinator(coordinator).mount("tools", tool)
    return tool
