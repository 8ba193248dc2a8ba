"""The rows of a conversation, as contexts keep them: dictionaries in the contracts' message format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.messages import ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.kernel.messages import ContentBlock, ToolCall


def user_row(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant_row(content: Iterable[ContentBlock], calls: Iterable[ToolCall] = ()) -> dict[str, Any]:
    """What the model said.

    Tool calls stand among the blocks, in the model's order, and in `tool_calls`, by which other people's contexts find
    the pairs.
    """
    blocks = list(content)
    calls = list(calls)
    inside = {block.id for block in blocks if isinstance(block, ToolCallBlock)}
    blocks += [ToolCallBlock(id=c.id, name=c.name, input=c.arguments) for c in calls if c.id not in inside]
    row: dict[str, Any] = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in blocks]}
    if calls:
        row["tool_calls"] = [_wire_call(call) for call in calls]
    return row


def tool_row(call: ToolCall, content: str | list[dict[str, Any]], *, failed: bool = False) -> dict[str, Any]:
    """The result of a call: text, or blocks where there is more to it than text."""
    row: dict[str, Any] = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
    if failed:
        row["metadata"] = {"is_error": True}
    return row


def call_ids(row: dict[str, Any]) -> list[str]:
    """The ids of the tool calls in an assistant row, wherever they stand."""
    ids = [call["id"] for call in row.get("tool_calls") or ()]
    content = row.get("content")
    if isinstance(content, list):
        ids += [block["id"] for block in content if block.get("type") == "tool_call" and block["id"] not in ids]
    return ids


def _wire_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}
