"""Where the calls of a message stand: among its blocks, or beside them, as other loops keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import Message


def calls_in(message: Message) -> list[str]:
    """The ids of a message's calls; what stands among the blocks and beside them, in `tool_calls`, is one call."""
    content = message.content
    inside = [] if isinstance(content, str) else [block.id for block in content if isinstance(block, ToolCallBlock)]
    beside = [call["id"] for call in calls_beside(message) if is_call(call)]
    if not beside or beside == inside:
        return inside
    ids, seen = list(inside), list(inside)
    for call_id in beside:
        if call_id in seen:
            seen.remove(call_id)
        else:
            ids.append(call_id)
    return ids


def calls_beside(message: Message) -> list[Any]:
    """What stands in the field `tool_calls`, where other loops keep calls; `[None]` for something else than a list."""
    beside = (message.model_extra or {}).get("tool_calls")
    if beside is None:
        return []
    return list(beside) if isinstance(beside, list | tuple) else [None]


def is_call(call: Any) -> bool:
    """Whether a call beside the content is one, in OpenAI's form or with its name beside its id."""
    return isinstance(call, dict) and isinstance(call.get("id"), str) and isinstance(named(call).get("name"), str)


def named(call: dict[str, Any]) -> dict[str, Any]:
    """The part of such a call that has the tool's name and the arguments."""
    function = call.get("function")
    return function if isinstance(function, dict) else call
