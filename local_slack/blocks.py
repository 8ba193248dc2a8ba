"""How much Slack takes in one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TEXT_OF_A_POST = 40_000
TEXT_OF_AN_UPDATE = 4_000
_BLOCKS = 50
_SECTION = 3_000
_HEADER = 150
_ACTION_ELEMENTS = 25
_MARKDOWN = 12_000
_ALL_BLOCK_TEXT = 13_200


def check_text(text: str, longest: int) -> None:
    if len(text) > longest:
        raise SlackRefused("msg_too_long")


def check_blocks(blocks: Sequence[dict[str, Any]]) -> None:
    """Refuse what is too much; the blocks' own schemas are not checked."""
    if len(blocks) > _BLOCKS:
        raise SlackRefused("invalid_blocks", f"[ERROR] no more than {_BLOCKS} items allowed [json-pointer:/blocks]")
    for number, block in enumerate(blocks):
        _check_block(block, f"/blocks/{number}")
    markdown = sum(len(str(block.get("text", ""))) for block in blocks if block["type"] == "markdown")
    if markdown > _MARKDOWN or sum(len(text) for text in _texts(list(blocks))) > _ALL_BLOCK_TEXT:
        raise SlackRefused("msg_blocks_too_long")


def _check_block(block: dict[str, Any], pointer: str) -> None:
    kind = block.get("type")
    if not isinstance(kind, str):
        raise _wrong("missing required field: type", pointer)
    text = block.get("text")
    size = len(text.get("text", "")) if isinstance(text, dict) else 0
    if (kind == "section" and size > _SECTION) or (kind == "header" and size > _HEADER):
        limit = _SECTION if kind == "section" else _HEADER
        raise _wrong(f"must be less than {limit + 1} characters", f"{pointer}/text/text")
    if kind == "actions" and len(block.get("elements", ())) > _ACTION_ELEMENTS:
        raise _wrong(f"no more than {_ACTION_ELEMENTS} items allowed", f"{pointer}/elements")


def _wrong(what: str, pointer: str) -> SlackRefused:
    return SlackRefused("invalid_blocks", f"[ERROR] {what} [json-pointer:{pointer}]")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "text" and isinstance(item, str):
                yield item
            else:
                yield from _texts(item)
