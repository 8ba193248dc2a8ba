"""Convert rows to states and back."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions.errors import InvalidTransition
from orchestrator_interactive.interactions.flow import after
from orchestrator_interactive.interactions.records import Flow
from orchestrator_interactive.interactions.states import (
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
)
from orchestrator_interactive.modules.context_stack.states import RowState
from orchestrator_interactive.transcript.rows import is_prompt, tool_call_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator_interactive.interactions.states import BaseState

    Row = dict[str, Any]

_KEYS: dict[Any, frozenset[str]] = {
    "user": frozenset({"role", "content", "metadata"}),
    "assistant": frozenset({"role", "content", "tool_calls", "metadata"}),
    "tool": frozenset({"role", "tool_call_id", "name", "content", "metadata"}),
}


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
            return _answer(row, content)
        case {"role": "tool", "tool_call_id": str(call_id), "content": content} if _content(content) is content:
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
            flow = reduce(lambda so_far, state: after(so_far, state, ""), converted, flow)
        except InvalidTransition:
            converted = (RowState(row),)
        states += converted
    return states


def reward_of(state: BaseState) -> dict[str, float]:
    """Return the reward of a result by call id; empty if it has none."""
    if isinstance(state, ToolResultState) and state.reward is not None:
        return {state.tool_call_id: state.reward}
    return {}


def row_of(state: BaseState) -> Row | None:
    """Return the row of a state; `None` if it has no row of its own."""
    match state:
        case RowState(row):
            return row
        case UserMessageState(text, meta) | UserResponseState(text, meta):
            return _row({"role": "user", "content": text}, meta)
        case AssistantMessageState() if state.is_reflection:
            return None
        case AssistantMessageState(content, calls, meta):
            row = {"role": "assistant", "content": content}
            if calls is not None or (calls := _tool_calls(_calls_inside(content))):
                row["tool_calls"] = calls
            return _row(row, meta)
        case ToolResultState(call_id, name, result, _, meta):
            row = {"role": "tool", "tool_call_id": call_id, "content": _content(result)}
            if name is not None:
                row["name"] = name
            return _row(row, meta)
    return None


def unreadable(row: Any) -> str | None:
    """Describe why a stored row is invalid; `None` if it is valid. The content is not checked."""
    if not isinstance(row, dict) or not isinstance(row.get("role"), str):
        return "It is not a row: an object with a role."
    return None


def _answer(row: Row, content: Any) -> tuple[BaseState, ...]:
    """Return the states of an answer. Calls in its blocks become states of their own; others stay in the answer."""
    calls, inside = row.get("tool_calls"), _calls_inside(content)
    if calls == _tool_calls(inside) if inside else "tool_calls" not in row:
        calls = None
    elif not _are_calls(calls):
        return (RowState(row),)
    state = AssistantMessageState(content, calls, row.get("metadata"))
    if state.is_reflection:
        return (RowState(row),)
    return (state, *inside) if calls is None else (state,)


def _tool_calls(calls: Sequence[ToolCallState]) -> list[dict[str, Any]]:
    return [tool_call_dict(call.id, call.function_name, call.arguments) for call in calls]


def _row(row: Row, meta: Any) -> Row:
    if meta is not None:
        row["metadata"] = meta
    return row


def _calls_inside(content: Any) -> list[ToolCallState]:
    """Return the calls in the blocks of an answer."""
    if not isinstance(content, list):
        return []
    return [
        ToolCallState(call_id, name, arguments)
        for block in content
        if isinstance(block, dict) and block.get("type") == "tool_call"
        for call_id, name, arguments in [(block.get("id"), block.get("name"), block.get("input"))]
        if isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, dict)
    ]


def _are_calls(calls: Any) -> bool:
    return isinstance(calls, list) and all(isinstance(c, dict) and isinstance(c.get("id"), str) for c in calls)


def _content(result: Any) -> Any:
    """Return a result for the model: text and blocks unchanged, other values as JSON."""
    is_blocks = (
        isinstance(result, list) and result and all(isinstance(each, dict) and "type" in each for each in result)
    )
    return result if isinstance(result, str) or is_blocks else json.dumps(result)


def row_of_message(message: Row) -> Row:
    """Convert a message from OpenAI's format to a row; only images differ."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_image(part) if part.get("type") == "image_url" else part for part in content]}


def _image(part: Row) -> Row:
    url: str = part["image_url"]["url"]
    kind, found, data = url.removeprefix("data:").partition(";base64,")
    source = {"type": "base64", "media_type": kind, "data": data} if found else {"type": "url", "url": url}
    return {"type": "image", "source": source}
