"""The to-do list of an agent, parsed from the arguments of its `todo` tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connector.formatting.content import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

# The tool whose arguments are the list; see `protocols.SessionManager`.
TODO_TOOL = "todo"
_MARKS = {"pending": "☐", "in_progress": "▶", "done": "☑"}
_TEXT_CHARS = 120
_MOST_LINES = 8
# Number of items shown before the current one if the list is too long.
_DONE_BEFORE = 2


@dataclass(frozen=True, slots=True)
class StatusTodo:
    text: str
    status: str


TodoList = tuple[StatusTodo, ...]


def todo_of(args: Any) -> TodoList | None:
    """Parse the list that a call sets; `None`: it sets none. The arguments come from a model and are not validated."""
    items = args.get("items") if isinstance(args, dict) and args.get("action", "set") == "set" else None
    if not isinstance(items, list):
        return None
    return tuple(item for item in map(_item, items) if item is not None)


def _item(given: Any) -> StatusTodo | None:
    if not isinstance(given, dict) or not isinstance(given.get("text"), str):
        return None
    status = given.get("status", "pending")
    return StatusTodo(given["text"], status if isinstance(status, str) and status in _MARKS else "pending")


def lines(todo: TodoList) -> list[str]:
    """Render the list: the progress, and the items around the current one."""
    done = sum(item.status == "done" for item in todo)
    shown, before = _around(todo)
    after = len(todo) - before - len(shown)
    items = [f"{_MARKS[item.status]} {one_line(item.text, _TEXT_CHARS)}" for item in shown]
    more = ([f"… {before} before"] if before else [], [f"… {after} more"] if after else [])
    return [f"To do: {done} of {len(todo)} done", *more[0], *items, *more[1]]


def _around(todo: TodoList) -> tuple[Sequence[StatusTodo], int]:
    """Return the shown items, and the number of items before them."""
    at_work = [place for place, item in enumerate(todo) if item.status == "in_progress"]
    to_come = [place for place, item in enumerate(todo) if item.status == "pending"]
    here = next(iter([*at_work, *to_come]), 0)
    start = max(0, min(here - _DONE_BEFORE, len(todo) - _MOST_LINES))
    return todo[start : start + _MOST_LINES], start
