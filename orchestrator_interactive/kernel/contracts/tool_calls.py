"""Tool calls of a message: in its content blocks, or in the field `tool_calls`, as other loops store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Message


def calls_of(content: Iterable[ContentBlock]) -> list[ToolCall]:
    """Return the calls in content blocks, in order."""
    return [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in content if isinstance(b, ToolCallBlock)]


def calls_in(message: Message) -> list[str]:
    """Return the ids of a message's calls. A call that is in both the blocks and `tool_calls` counts once."""
    content, field = message.content, calls_in_field(message)
    inside = [] if isinstance(content, str) else [block.id for block in content if isinstance(block, ToolCallBlock)]
    beside = [call["id"] for call in field if is_call(call)] if field else []
    if not beside or beside == inside:
        return inside
    ids, seen = list(inside), list(inside)
    for call_id in beside:
        if call_id in seen:
            seen.remove(call_id)
        else:
            ids.append(call_id)
    return ids


def calls_in_field(message: Message) -> list[Any]:
    """Return the field `tool_calls`, in which other loops store calls; `[None]` if it is not a list."""
    extra = message.__pydantic_extra__  # `model_extra` is a property
    if not extra or (beside := extra.get("tool_calls")) is None:
        return []
    return list(beside) if isinstance(beside, list | tuple) else [None]


def is_call(call: Any) -> bool:
    """Return whether an entry of `tool_calls` is a call, in OpenAI's form or with id and name on one level."""
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return False
    return isinstance(function_of(call).get("name"), str)


def function_of(call: dict[str, Any]) -> dict[str, Any]:
    """Return the part of such a call that contains the tool's name and the arguments."""
    function = call.get("function")
    return function if isinstance(function, dict) else call
