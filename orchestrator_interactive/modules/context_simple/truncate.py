"""Shorten single rows when leaving out others is not enough."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.context_simple.history import is_from_user, is_result
from orchestrator_interactive.transcript.rows import (
    BYTES_PER_TOKEN,
    MARK_END,
    estimate,
    is_prompt,
    metadata_of,
    truncate_middle,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.modules.context_simple.history import MessageHistory

    Row = dict[str, Any]

# Size at which a text is still useful.
_READABLE_TOKENS = 250
# Minimum for a user row, so that its first line still names the author.
_USER_CHARS = 400
_MARK_TOKENS = 20


def truncated_rows(history: MessageHistory, shown: Sequence[int], excess: float) -> dict[int, Row]:
    """Return shortened forms of `shown` rows that save `excess` tokens in total, if possible.

    Results are shortened first, the oldest first, to a readable size and then to a mark; injected messages follow.
    Prompts, the last user message and the model's rows stay unchanged.
    """
    rows = history.rows
    results = [i for i in shown if is_result(rows[i])]
    from_users = [i for i in shown if is_from_user(rows[i])]
    injected = [i for i in from_users[:-1] if not is_prompt(rows[i])]
    short: dict[int, Row] = {}
    for indices, least in ((results, _READABLE_TOKENS), (results, 0), (injected, _READABLE_TOKENS)):
        for i in indices:
            if excess <= 0:
                return short
            size = estimate(short.get(i, rows[i]))
            row = _truncated_row(rows[i], max(least, int(size - excess) - _MARK_TOKENS))
            saved = size - estimate(row)
            if saved > 0 and MARK_END in row["content"]:
                short[i], excess = row, excess - saved
    return short


def _truncated_row(row: Row, tokens: int) -> Row:
    text = plain_text(row.get("content"))
    is_tools = row["role"] == "tool"
    least = 0 if is_tools else _USER_CHARS
    short = {**row, "content": truncated(text, tokens, least, by_items=not is_tools)}
    if "whole" in metadata_of(row):  # the whole text must not be stored with a view
        short["metadata"] = {key: value for key, value in metadata_of(row).items() if key != "whole"}
    return short


def truncated(text: str, tokens: int, least_chars: int = 0, *, by_items: bool = False) -> str:
    """Return the beginning and end of a text, about `tokens` long, with a mark between that states the missing size.

    `by_items` is passed to `truncate_middle`.
    """
    size = len(text.encode(errors="replace"))
    chars = max(int(len(text) * tokens * BYTES_PER_TOKEN / size) if size else 0, least_chars)
    return truncate_middle(text, chars, by_items=by_items)


def plain_text(content: Any) -> str:
    """Return the visible text of a row's content, without thinking and calls."""
    if isinstance(content, list):
        return "\n".join(text for block in content if (text := _block_text(block)))
    return content if isinstance(content, str) else _as_json(content)


def _block_text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image"}:
            return f"[… an image is {MARK_END}"
        case {"type": "tool_result", "output": output}:
            return output if isinstance(output, str) else _as_json(output)
        case {"type": "thinking" | "redacted_thinking" | "reasoning" | "tool_call"}:
            return ""
    return _as_json(block)


def _as_json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
