"""Rows that are shown shortened, where leaving out others is not enough."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.context_simple.history import is_result, is_said
from orchestrator_interactive.transcript.rows import MARK_END, abridged, is_prompt, metadata_of
from orchestrator_interactive.transcript.tokens import BYTES_PER_TOKEN, estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.modules.context_simple.history import MessageHistory

    Row = dict[str, Any]

# A text of this size can still be made sense of.
_READABLE_TOKENS = 250
# What a user row keeps at least, so that its first line says whose words it holds.
_USER_CHARS = 400
_MARK_TOKENS = 20


def shortened_rows(history: MessageHistory, shown: Sequence[int], excess: float) -> dict[int, Row]:
    """Shortened forms of the rows that are `shown`, so that together they are smaller by `excess` tokens.

    Results go first, the oldest first, down to what can be read and then to a mark in their place; then what people
    said while the agent was at work. Prompts, their last word, and what the model said stay as they are.
    """
    rows = history.rows
    results = [i for i in shown if is_result(rows[i])]
    said = [i for i in shown if is_said(rows[i])]
    injected = [i for i in said[:-1] if not is_prompt(rows[i])]
    short: dict[int, Row] = {}
    for indices, least in ((results, _READABLE_TOKENS), (results, 0), (injected, _READABLE_TOKENS)):
        for i in indices:
            if excess <= 0:
                return short
            size = estimate(short.get(i, rows[i]))
            row = _shortened_row(rows[i], max(least, int(size - excess) - _MARK_TOKENS))
            saved = size - estimate(row)
            if saved > 0 and MARK_END in row["content"]:
                short[i], excess = row, excess - saved
    return short


def _shortened_row(row: Row, tokens: int) -> Row:
    text = plain_text(row.get("content"))
    is_tools = row["role"] == "tool"
    least = 0 if is_tools else _USER_CHARS
    short = {**row, "content": shortened(text, tokens, least, by_items=not is_tools)}
    if "whole" in metadata_of(row):  # a view is written as a whole, and shows nothing of this
        short["metadata"] = {key: value for key, value in metadata_of(row).items() if key != "whole"}
    return short


def shortened(text: str, tokens: int, least_chars: int = 0, *, by_items: bool = False) -> str:
    """The beginning and the end of a text, about `tokens` long, with a mark between that says how much is missing.

    `by_items` is that of `abridged`.
    """
    size = len(text.encode(errors="replace"))
    chars = max(int(len(text) * tokens * BYTES_PER_TOKEN / size) if size else 0, least_chars)
    return abridged(text, chars, by_items=by_items)


def plain_text(content: Any) -> str:
    """What a reader sees of the content of a row; thinking and calls are not among it."""
    if isinstance(content, list):
        return "\n".join(text for block in content if (text := _block_text(block)))
    return content if isinstance(content, str) else _written(content)


def _block_text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image"}:
            return f"[… an image is {MARK_END}"
        case {"type": "tool_result", "output": output}:
            return output if isinstance(output, str) else _written(output)
        case {"type": "thinking" | "redacted_thinking" | "reasoning" | "tool_call"}:
            return ""
    return _written(block)


def _written(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
