"""Parts of rows, and names that an API accepts, for the conversions of all providers."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import TextBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Message

# The first message of a history that begins with an answer: the APIs require that the user begins.
EARLIER = "(The beginning of this conversation is not shown.)"
NO_OUTPUT = "(no output)"
_SYSTEM = ("system", "developer")
_VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_STEM = 55


def is_system(row: Message) -> bool:
    return row.role in _SYSTEM


def blocks_of(row: Message) -> list[ContentBlock]:
    return [TextBlock(text=row.content)] if isinstance(row.content, str) else row.content


def text_of(row: Message) -> str:
    return "\n\n".join(block.text for block in blocks_of(row) if isinstance(block, TextBlock))


def reminder(row: Message) -> str:
    """Return the text of a system row in the middle of a history, as part of a user message; empty if it is blank."""
    text = text_of(row)
    return f"<system-reminder>\n{text}\n</system-reminder>" if text.strip() else ""


def calls_in_field(row: Message) -> Iterator[tuple[str, str, Any]]:
    """Yield id, name and arguments of the calls in `tool_calls`, in OpenAI's form or as the kernel's `ToolCall`."""
    for call in (row.model_extra or {}).get("tool_calls") or ():
        function = call.get("function") or call
        if name := function.get("name") or function.get("tool"):
            yield str(call.get("id") or ""), str(name), function.get("arguments")


def api_name(name: str) -> str:
    """Return a valid tool name or call id; deterministic, distinct for distinct inputs, and unchanged if valid."""
    return name if _VALID.fullmatch(name) else shortened(name, _MAX_STEM)


def shortened(name: str, stem_chars: int) -> str:
    """Return a name of valid characters only: the first of the given ones, and nine for a digest."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_INVALID.sub('_', name)[:stem_chars]}_{digest}"
