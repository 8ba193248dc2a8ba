"""How large a row is for a model, about."""

from __future__ import annotations

from typing import Any

BYTES_PER_TOKEN = 4

# A message costs a little more than its text. An image costs by its width and height, which nobody here knows; the
# length of its base64 says nothing.
_ROW_TOKENS = 4
_IMAGE_TOKENS = 1_600
_BLOCK_BYTES = 8
_QUOTES = 4  # around a text in JSON, and what parts it from the next


def estimate(row: dict[str, Any]) -> int:
    """Tokens of a row, roughly: a quarter of the bytes that a provider sees of it.

    Bytes, since scripts beyond ASCII take more tokens. Metadata are for those who keep the row, so they do not count;
    a call counts once, though it stands both among the blocks and in `tool_calls`.
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
    """The calls that do not stand among the blocks too."""
    blocks = content if isinstance(content, list) else ()
    inside = {block.get("id") for block in blocks if isinstance(block, dict) and block.get("type") == "tool_call"}
    calls = calls if isinstance(calls, list | tuple) else [calls]
    return [call for call in calls if not isinstance(call, dict) or call.get("id") not in inside]


def _size(value: Any) -> int:
    """Bytes of a value as JSON, about. A list that grows rather than a recursion: this is done for every row."""
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
