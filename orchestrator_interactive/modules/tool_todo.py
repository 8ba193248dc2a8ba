"""`tool-todo`: a to-do list per session; other modules can read it.

It also accepts the input of Amplifier's module of this name: the actions `create`, `update` and `list`, and `todos`
with `content`, `activeForm` and the status `completed`. Such a call returns that module's output.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002 - pydantic reads it

from orchestrator_interactive.config import Options, schema, validate
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.loop.tool_results import results_in

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

TodoStatus = Literal["pending", "in_progress", "done"]

_MARKS: dict[TodoStatus, str] = {"pending": "☐", "in_progress": "▶", "done": "☑"}
# Amplifier's actions: the action here, and the status of the output.
_ACTIONS = {"create": ("set", "created"), "update": ("set", "updated"), "list": ("show", "listed")}


@dataclass(frozen=True, slots=True)
class TodoItem:
    text: str
    status: TodoStatus
    active_form: str | None = None

    def to_amplifier(self) -> dict[str, str]:
        """Return the item in the form of Amplifier's modules."""
        status = "completed" if self.status == "done" else self.status
        return {"content": self.text, "activeForm": self.active_form or self.text, "status": status}


class _Item(Options):
    model_config = ConfigDict(extra="ignore")  # Amplifier's items may have more keys, such as `id`

    text: str = Field(
        min_length=1,
        validation_alias=AliasChoices("text", "content"),
        description="The task, in a few words.",
    )
    status: Annotated[TodoStatus, BeforeValidator(lambda given: "done" if given == "completed" else given)] = "pending"
    active_form: SkipJsonSchema[str | None] = Field(None, validation_alias=AliasChoices("active_form", "activeForm"))

    @field_validator("text", mode="before")
    @classmethod
    def _in_one_line(cls, text: Any) -> Any:
        return " ".join(text.split()) if isinstance(text, str) else text


class _Input(Options):
    action: Annotated[
        Literal["set", "show"], BeforeValidator(lambda given: _ACTIONS.get(str(given), (given, ""))[0])
    ] = Field("set", description="'set' replaces the list, 'show' only returns it.")
    items: list[_Item] | None = Field(
        None,
        max_length=100,
        validation_alias=AliasChoices("items", "todos"),
        description="The whole new list, in order. For 'set'.",
    )

    @model_validator(mode="after")
    def _set_has_items(self) -> _Input:
        if self.action == "set" and self.items is None:
            raise ValueError(
                "'set' needs 'items', the whole new list; use {\"action\": \"show\"} to see the current one"
            )
        return self


class TodoTool:
    """Sets and shows the to-do list of a session."""

    name = "todo"
    description = (
        "Keep a to-do list for the current task, which the user can see. Give the whole list each time: every item has "
        "a text and a status (pending, in_progress, done). Use it for work of several steps, and update it as you go."
    )
    input_schema = schema(_Input)
    destructive = False
    side_effect_free = False  # users see the list: a call from a discarded answer must not change it

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self._coordinator = coordinator
        self._items: tuple[TodoItem, ...] | None = None  # None: the log may have some
        self.todo_state: list[dict[str, str]] = []  # the items in the form of Amplifier's modules

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        shows = isinstance(input, dict) and input.get("action") in ("show", "list")
        return "Looking at the to-do list" if shows else "Updating the to-do list"

    def items(self) -> list[TodoItem]:
        return list(self._items or ())

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        """Set or show the list; the output is the list as text, or for Amplifier's actions its JSON."""
        try:
            wanted = validate(_Input, input, "todo")
        except ValueError as e:
            return ToolResult(success=False, error={"message": str(e)})
        if wanted.action == "set":
            self._set(wanted.items)
        elif self._items is None and (context := self._coordinator.get("context")) is not None:
            logged = _last_set(await context.get_messages())
            if self._items is None:  # a parallel call may have set them
                self._set(logged)
        if given := _ACTIONS.get(input.get("action", "set")):
            counts = Counter(todo["status"] for todo in self.todo_state)
            numbers = {status: counts[status] for status in ("pending", "in_progress", "completed")}
            todos = list(self.todo_state)
            return ToolResult(output={"status": given[1], "count": len(todos), **numbers, "todos": todos})
        return ToolResult(output=rendered(self.items()))

    def _set(self, items: list[_Item] | None) -> None:
        self._items = tuple(TodoItem(item.text, item.status, item.active_form) for item in items or ())
        self.todo_state[:] = [item.to_amplifier() for item in self._items]


def _last_set(rows: list[dict[str, Any]]) -> list[_Item] | None:
    """Return the items of the last call in the log that set them, for a process that continues the conversation."""
    done: set[str] = set()
    for row in reversed(rows):
        done.update(call_id for call_id, outcome, _ in results_in(row) if outcome == "finished")
        blocks = row["content"] if row["role"] == "assistant" and isinstance(row["content"], list) else []
        for block in reversed(blocks):
            match block:
                case {"type": "tool_call", "name": TodoTool.name, "id": str(call_id), "input": given} if (
                    call_id in done
                ):
                    with suppress(ValueError):  # a hook changed the input of the call
                        if (wanted := validate(_Input, given, TodoTool.name)).action == "set":
                            return wanted.items
    return None


def rendered(items: tuple[TodoItem, ...] | list[TodoItem]) -> str:
    """Render the list for people, one line per item."""
    return "\n".join(f"{_MARKS[item.status]} {item.text}" for item in items) or "The to-do list is empty."


class TodoOptions(Options):
    """`tool-todo` has no options."""


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> TodoTool:
    """Mount the tool and the capability `todo.items`, a function that returns the current items.

    The items are also in the attribute `todo_state` of the coordinator, where Amplifier's hooks read them.

    Raises:
        ValueError: the configuration is not empty.
    """
    validate(TodoOptions, config, "tool-todo")
    local = to_local_coordinator(coordinator)
    tool = TodoTool(local)
    coordinator.todo_state = tool.todo_state  # type: ignore[attr-defined]
    await local.mount("tools", tool, name=tool.name)
    local.register_capability("todo.items", tool.items)
    return tool
