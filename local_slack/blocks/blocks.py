"""Slack's limits on the text and the blocks of one message."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from local_slack.blocks.block_schemas import BLOCK, BLOCKS_OF_A_MESSAGE, MARKDOWN_TEXT
from local_slack.blocks.schema import Many, at, problems
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TEXT_OF_A_POST = 40_000
TEXT_OF_AN_UPDATE = 4_000
_ALL_BLOCK_TEXT = 13_200


def check_text(text: str, longest: int) -> None:
    if len(text) > longest:
        raise SlackRefused("msg_too_long")


def check_blocks(blocks: Any, pointer: str = "/blocks") -> None:
    """Refuse invalid blocks, and blocks whose text is too long in total."""
    wrong = list(block_problems(blocks, pointer, BLOCKS_OF_A_MESSAGE))
    if wrong:
        raise SlackRefused("invalid_blocks", *(f"[ERROR] {what}" for what in wrong))
    markdown = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    if markdown > MARKDOWN_TEXT or sum(len(text) for text in _texts(list(blocks))) > _ALL_BLOCK_TEXT:
        raise SlackRefused("msg_blocks_too_long")


def block_problems(blocks: Any, pointer: str, most: int) -> Iterator[str]:
    """Return all problems of the blocks of a message or a view."""
    wrong = list(problems(blocks, Many(BLOCK, most, least=0), pointer))
    yield from wrong
    if not wrong:
        yield from _repeated(blocks, pointer)


def with_ids(blocks: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Add missing ids to blocks and to interactive elements, as Slack does."""
    return tuple(_with_ids(block) for block in blocks)


def _with_ids(block: dict[str, Any]) -> dict[str, Any]:
    named = {**block, "block_id": block.get("block_id") or _fresh_id()}
    if block["type"] in ("actions", "context_actions"):
        named["elements"] = [_actionable(element) for element in block["elements"]]
    place = {"section": "accessory", "input": "element"}.get(block["type"], "")
    if (element := block.get(place)) and element["type"] != "image":
        named[place] = _actionable(element)
    return named


def _actionable(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "action_id": element.get("action_id") or _fresh_id()}


def _fresh_id() -> str:
    return secrets.token_hex(3)


def _repeated(blocks: Sequence[dict[str, Any]], pointer: str) -> Iterator[str]:
    """Find duplicate ids: a block id is unique in the message, an action id in its block."""
    seen: set[str] = set()
    for number, block in enumerate(blocks):
        place = f"{pointer}/{number}"
        if (name := block.get("block_id")) in seen:
            yield at(f'`block_id` "{name}" already exists for another block', f"{place}/block_id")
        seen |= {name} if name else set()
        elements = block["elements"] if block["type"] in ("actions", "context_actions") else ()
        actions: set[str] = set()
        for position, element in enumerate(elements):
            if (action := element.get("action_id")) in actions:
                where = f"{place}/elements/{position}/action_id"
                yield at(f'`action_id` "{action}" already exists for another element', where)
            actions |= {action} if action else set()


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
