"""Estimate the tokens of a row."""

from __future__ import annotations

from typing import Any

BYTES_PER_TOKEN = 4

# Overhead of a message beyond its text. The cost of an image depends on its width and height, which are unknown here,
# not on the length of its base64.
_ROW_TOKENS = 4
_IMAGE_TOKENS = 1_600
_BLOCK_BYTES = 8
_QUOTES = 4  # around a text in JSON, and its separator


def estimate(row: dict[str, Any]) -> int:
    """Estimate the tokens of a row as a quarter of the bytes that a provider receives.

    Bytes rather than characters, because scripts beyond ASCII take more tokens. Metadata do not count. A call in both
    the blocks and `tool_calls` counts once.
    """
    content = row.get("content")
    size = images = 0
    if isinstance(content, str):
        size = _bytes(content)
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "image":
                images += 1
            else:
                size += _block_size(block)
    elif content is not None:
        size = _size(content)
    if calls := row.get("tool_calls"):
        size += _size(_only_beside(calls, content))
    return _ROW_TOKENS + size // BYTES_PER_TOKEN + images * _IMAGE_TOKENS


def _block_size(block: Any) -> int:
    if isinstance(block, dict) and isinstance(text := block.get("text"), str):
        return _BLOCK_BYTES + _bytes(text)
    return _size(block)


def _only_beside(calls: Any, content: Any) -> list[Any]:
    """Return the calls that are not in the content blocks."""
    blocks = content if isinstance(content, list) else ()
    inside = {block.get("id") for block in blocks if isinstance(block, dict) and block.get("type") == "tool_call"}
    calls = calls if isinstance(calls, list | tuple) else [calls]
    return [call for call in calls if not isinstance(call, dict) or call.get("id") not in inside]


def _size(value: Any) -> int:
    """Estimate the bytes of a value as JSON. Iterative for speed: it runs for every row."""
    parts, size = [value], 0
    for part in parts:
        if isinstance(part, str):
            size += _bytes(part) + _QUOTES
        elif isinstance(part, dict):
            parts += part
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, int):
            size += part.bit_length() // 3 + 2
        elif part is None or isinstance(part, float):
            size += 6
        else:
            size += len(str(part))
    return size


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
