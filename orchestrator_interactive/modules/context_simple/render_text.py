"""Render a part of a conversation as plain text for a summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.modules.context_simple.history import is_of_a_hook, is_system
from orchestrator_interactive.modules.context_simple.truncate import plain_text, truncated
from orchestrator_interactive.transcript.rows import BYTES_PER_TOKEN, is_prompt, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Row = dict[str, Any]

# Limits per text, tried in turn.
_TOKENS_PER_TEXT = (4_000, 1_000, 250, 60)


def render_text(rows: Sequence[Row], room_tokens: int) -> str:
    """Render rows as text of about `room_tokens` at most; shorten long texts first, then the whole.

    The text has no tool pairs that could be separated, and continuation lines cannot pass for another speaker's.
    """
    text = ""
    for tokens in _TOKENS_PER_TEXT:
        text = "\n".join(
            _passage(who, truncated(text, tokens, by_items=True)) for row in rows for who, text in _passages(row)
        )
        if len(text.encode()) <= room_tokens * BYTES_PER_TOKEN:
            return text
    return truncated(text, room_tokens, by_items=True)


def _passage(who: str, text: str) -> str:
    return "\n  ".join([f"{' '.join(sendable(who).split())}:", *sendable(text).splitlines()])


def _passages(row: Row) -> Iterator[tuple[str, str]]:
    text = plain_text(row.get("content")).strip()
    if text:
        yield _speaker(row), text
    if row["role"] == "assistant":
        yield from ((f"Agent calls {name}, {call_id}", arguments) for call_id, name, arguments in _calls(row))


def _speaker(row: Row) -> str:
    if is_of_a_hook(row) or is_system(row):
        return "Remark"
    match row["role"]:
        case "assistant":
            return "Agent"
        case "tool":
            failed = ", failed" if metadata_of(row).get("is_error") else ""
            return f"Result of {row.get('name') or 'a tool'}, {row.get('tool_call_id')}{failed}"
    return "User" if is_prompt(row) or "injections" in metadata_of(row) else "Report"


def _calls(row: Row) -> Iterator[tuple[Any, Any, str]]:
    """Yield id, name and input of the calls in an assistant row, from its blocks and its `tool_calls`."""
    content = row.get("content")
    seen = set()
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_call":
            seen.add(block.get("id"))
            yield block.get("id"), block.get("name"), _as_text(block.get("input"))
    tool_calls = row.get("tool_calls")
    for call in tool_calls if isinstance(tool_calls, list) else ():
        if not isinstance(call, dict):
            continue
        function = call.get("function") or call
        if call.get("id") not in seen:
            yield call.get("id"), function.get("name") or function.get("tool"), _as_text(function.get("arguments"))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
