"""Convert the rows of a context to states of its log, and states to rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.interactions.errors import InvalidTransition
from orchestrator_interactive.interactions.flow import after
from orchestrator_interactive.interactions.records import Flow
from orchestrator_interactive.interactions.states import (
    AssistantMessageState,
    BaseState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
)
from orchestrator_interactive.transcript.rows import is_prompt, tool_call_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = dict[str, Any]

_KEYS: dict[Any, frozenset[str]] = {
    "user": frozenset({"role", "content", "metadata"}),
    "assistant": frozenset({"role", "content", "tool_calls", "metadata"}),
    "tool": frozenset({"role", "tool_call_id", "name", "content", "metadata"}),
}
_RESULT_BLOCKS = {"text", "image", "tool_result"}


@dataclass(slots=True, frozen=True)
class RowState(BaseState):
    """A row outside the flow: a hook's row, a system row, or a row that the flow does not allow at its position."""

    row: dict[str, Any]

    def message(self) -> dict[str, Any]:
        """Return the message for a model."""
        return self.row


@dataclass(slots=True, frozen=True)
class ViewState(BaseState):
    """The view of requests from here on, once the conversation exceeds the window; `None` for all of it."""

    view: dict[str, Any] | None

    def note(self) -> str:
        if self.view is None:
            return "From here on the model sees the whole conversation"
        part = "a summary and a part" if self.view.get("summary") else "a part"
        return f"From here on the model sees {part} of the earlier conversation"


@dataclass(slots=True, frozen=True)
class ErasureState(BaseState):
    """The record that messages of a person were erased from the log; no model reads it."""

    user: str
    messages: int

    def note(self) -> str:
        return f"{self.messages} messages of {self.user} were erased"


class DeclaredCall(NamedTuple):
    """A call in an answer; the arguments are JSON."""

    id: str
    name: str
    arguments: str


def states_of(row: Row, rewards: Mapping[str, float]) -> tuple[BaseState, ...]:
    """Return the states of a row: the message, and the calls in its blocks. The first state restores the whole row.

    `rewards` maps call ids to the rewards of their results.
    """
    if row.keys() - _KEYS.get(row.get("role"), frozenset()) or None in (row.get("metadata", 0), row.get("name", 0)):
        return (RowState(row),)
    match row:
        case {"role": "user", "content": str() | list() as content}:
            return (UserMessageState(content, row.get("metadata"), meanwhile=not is_prompt(row)),)
        case {"role": "assistant", "content": content}:
            return _states_of_answer(row, content)
        case {"role": "tool", "tool_call_id": str(call_id), "content": content} if _result_content(content) is content:
            name, reward = row.get("name"), rewards.get(call_id)
            return (ToolResultState(call_id, name, content, reward, row.get("metadata")),)
    return (RowState(row),)


def valid_states(rows: Iterable[Row], rewards: Mapping[str, float]) -> list[BaseState]:
    """Return the states of a whole history; rows that the flow does not allow are stored outside of it."""
    flow = Flow()
    states: list[BaseState] = []
    for row in rows:
        converted = states_of(row, rewards)
        try:
            then = flow
            for state in converted:
                then, _ = after(then, state, "")
            flow = then
        except InvalidTransition:
            converted = (RowState(row),)
        states += converted
    return states


def row_of(state: BaseState) -> Row | None:
    """Return the row of a state; `None` if it has no row of its own."""
    match state:
        case RowState(row):
            return row
        case UserMessageState(text, meta) | UserResponseState(text, meta):
            row = {"role": "user", "content": text}
        case AssistantMessageState(content, calls, meta) if not state.is_reflection:
            row = {"role": "assistant", "content": content}
            if calls is not None or (calls := _tool_calls(_calls_inside(content))):
                row["tool_calls"] = calls
        case ToolResultState(call_id, name, result, _, meta):
            row = {"role": "tool", "tool_call_id": call_id, "content": _result_content(result)}
            if name is not None:
                row["name"] = name
        case _:
            return None
    return row if meta is None else {**row, "metadata": meta}


def declared_calls(content: Any, tool_calls: Any) -> list[DeclaredCall]:
    """Return the calls in an answer's content and `tool_calls`, without duplicates and calls without an id."""
    found: dict[str, DeclaredCall] = {}
    for each in (*_dicts(content), *_dicts(tool_calls)):
        call_id, kind = each.get("id"), each.get("type", "function")
        if isinstance(call_id, str) and call_id.strip() and kind in ("function", "tool_call"):
            part = each["function"] if isinstance(each.get("function"), dict) else each
            given = part.get("arguments", part.get("input"))
            arguments = given if isinstance(given, str) else as_json({} if given is None else given)
            found.setdefault(call_id, DeclaredCall(call_id, str(part.get("name") or ""), arguments))
    return list(found.values())


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def image_url(source: Any) -> str | None:
    """Return the URL of an image; it may be a data URL."""
    match source:
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return f"data:{kind};base64,{data}"
        case {"url": str(url)}:
            return url
    return None


def _states_of_answer(row: Row, content: Any) -> tuple[BaseState, ...]:
    """Return the states of an answer. Calls in its blocks become states of their own; others stay in the answer."""
    calls, inside = row.get("tool_calls"), _calls_inside(content)
    if calls == _tool_calls(inside) if inside else "tool_calls" not in row:
        calls = None
    elif not (isinstance(calls, list) and all(isinstance(c, dict) and isinstance(c.get("id"), str) for c in calls)):
        return (RowState(row),)
    state = AssistantMessageState(content, calls, row.get("metadata"))
    if state.is_reflection:
        return (RowState(row),)
    return (state, *inside) if calls is None else (state,)


def _calls_inside(content: Any) -> list[ToolCallState]:
    """Return the calls in the blocks of an answer."""
    calls = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "tool_call", "id": str(call_id), "name": str(name), "input": dict(arguments)}:
                calls.append(ToolCallState(call_id, name, arguments))
    return calls


def _tool_calls(calls: Sequence[ToolCallState]) -> list[Row]:
    return [tool_call_dict(call.id, call.function_name, call.arguments) for call in calls]


def _result_content(result: Any) -> Any:
    """Return a result for the model: text and blocks unchanged, other values as JSON."""
    if isinstance(result, str):
        return result
    blocks = _dicts(result)
    is_blocks = bool(blocks) and len(blocks) == len(result) and all(b.get("type") in _RESULT_BLOCKS for b in blocks)
    return result if is_blocks else as_json(result)


def _dicts(values: Any) -> list[Row]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []
