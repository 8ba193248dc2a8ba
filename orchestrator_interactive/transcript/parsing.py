"""Parse the rows of a conversation, from any author, into messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from orchestrator_interactive.json_limits import MAX_ROW_NESTING, bounded
from orchestrator_interactive.kernel.contracts.messages import ContentBlockUnion, Message, ToolResultBlock
from orchestrator_interactive.kernel.contracts.models import ToolResult

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ContentBlock

    Row = dict[str, Any]

# Errors raised for a malformed row.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)

_BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlockUnion)


def message_of(row: Row) -> Message:
    """Parse a row. Its metadata are dropped except `is_error`, which providers need.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the row is malformed.
    """
    row = bounded(row, MAX_ROW_NESTING)
    metadata = row.get("metadata")
    failed = {"is_error": metadata["is_error"]} if isinstance(metadata, dict) and "is_error" in metadata else None
    return Message.model_validate({**row, "content": row.get("content") or "", "metadata": failed})


def split_results(message: Message) -> list[Message]:
    """Split tool results in a user message, as in Anthropic's API, into separate messages."""
    if message.role != "user" or isinstance(message.content, str):
        return [message]
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    if not results:
        return [message]
    rest = [block for block in message.content if not isinstance(block, ToolResultBlock)]
    rest_message = [message.model_copy(update={"content": rest})] if rest else []
    return [Message(role="tool", tool_call_id=each.tool_call_id, content=[each]) for each in results] + rest_message


def best_effort(row: Any) -> list[Message]:
    """Parse the valid parts of a malformed row."""
    if not isinstance(row, dict):
        return []
    content = row.get("content")
    if isinstance(content, list):
        content = [block for block in content if _is_block(block)]
    elif content is not None and not isinstance(content, str):
        content = ToolResult(output=content).get_serialized_output()
    kept = {key: row[key] for key in ("role", "name", "tool_call_id", "tool_calls", "metadata") if key in row}
    try:
        return split_results(message_of({**kept, "content": content}))
    except UNREADABLE:
        return []


def _is_block(block: Any) -> bool:
    try:
        _BLOCK.validate_python(block)
    except ValidationError:
        return False
    return True
