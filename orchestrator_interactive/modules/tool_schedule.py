"""`tool-schedule`: the model schedules messages to itself, for the person whose run it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import uuid4

from pydantic import Field, model_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import current_call
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

_FIELDS = {"add": ("text", "when"), "remove": ("id",), "list": ()}
_DOING = {"add": "Scheduling", "list": "Looking at the schedules", "remove": "Removing a schedule"}


class _Input(Options):
    operation: Literal["add", "list", "remove"]
    text: str = Field("", max_length=2_000, description="For 'add': the message that you get then. Include all facts.")
    when: str = Field(
        "",
        max_length=100,
        description="For 'add': 'in 2 weeks', '2026-12-01 09:00', or a line of cron such as '0 9 * * 1'.",
    )
    zone: str = Field("", max_length=50, description="IANA name of the time zone. Blank: that of the person.")
    new_thread: bool = Field(default=False, description="Begin a thread in this channel each time.")
    id: str = Field("", max_length=20, description="For 'remove': the id of the schedule.")

    @model_validator(mode="after")
    def _is_complete(self) -> _Input:
        missing = [name for name in _FIELDS[self.operation] if not getattr(self, name)]
        if missing:
            raise ValueError(f"'{self.operation}' needs {' and '.join(missing)}")
        return self


class ScheduleTool(ValidatedTool[_Input]):
    """Adds, lists and removes schedules. A repeated call adds no second one."""

    name = "schedule"
    description = (
        "Send yourself a message at a later time, once or regularly: it begins a run in this thread. Use it to look at "
        "something again, or for regular tasks that a person asks for. Say what you have scheduled."
    )
    input_kind = _Input
    repeatable: ClassVar[bool] = True
    destructive: ClassVar[bool] = False

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        when = f" {input.get('when', '')}" if input.get("operation") == "add" else ""
        return f"{_DOING.get(str(input.get('operation')), 'Scheduling')}{when}"

    async def _work(self, wanted: _Input) -> str:
        function = self._coordinator.get_capability(f"schedules.{wanted.operation}")
        if function is None:
            raise ValueError("There are no schedules here: nothing would wake you.")
        match wanted.operation:
            case "add":
                call = current_call.get()
                given = wanted.model_dump(include={"text", "when", "zone", "new_thread"})
                added = await function(**given, call_id=uuid4().hex if call is None else call.id)
                return f"Scheduled. {added['line']}"
            case "remove":
                return f"Removed: {(await function(id=wanted.id))['removed']}"
        return "\n".join((await function())["lines"]) or "There are no schedules here."


class ScheduleOptions(Options):
    """`tool-schedule` has no options."""


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `schedule`. It works by the capabilities `schedules.…`, which the service registers.

    Raises:
        ValueError: the configuration is not empty.
    """
    validate(ScheduleOptions, config, "tool-schedule")
    coordinator = to_local_coordinator(coordinator)
    tool = ScheduleTool(coordinator)
    await coordinator.mount("tools", tool, name=tool.name)
