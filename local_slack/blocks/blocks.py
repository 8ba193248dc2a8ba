"""Block Kit: the blocks and elements that apps commonly use (docs.slack.dev/reference/block-kit), and Slack's limits.

For newer blocks, only the type is checked.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from local_slack.blocks.schema import ANYTHING, FLAG, WHOLE, ByType, Choice, Many, Schema, Shape, Text, at
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local_slack.json_limits import Json

TEXT_OF_A_POST = 40_000
TEXT_OF_AN_UPDATE = 4_000
SECTION_TEXT = 3_000
MARKDOWN_TEXT = 12_000
_ALL_BLOCK_TEXT = 13_200
BLOCKS_OF_A_MESSAGE = 50
BLOCKS_OF_A_VIEW = 100

_ID = Text(255)
_URL = Text(3_000)


def _plain(longest: int) -> Schema:
    return ByType({"plain_text": Shape({"text": Text(longest)}, {"emoji": FLAG})})


def _text(longest: int, **others: Schema) -> Schema:
    """Return the schema of a text in either format, or one of ``others``."""
    mrkdwn = Shape({"text": Text(longest)}, {"verbatim": FLAG})
    return ByType({"plain_text": Shape({"text": Text(longest)}, {"emoji": FLAG}), "mrkdwn": mrkdwn, **others})


PLAIN_24 = _plain(24)
_STYLE = Choice("primary", "danger")
_CONFIRM = Shape(
    {"title": _plain(100), "text": _text(300), "confirm": _plain(30), "deny": _plain(30)}, {"style": _STYLE}
)
_IMAGE = Shape({"alt_text": Text(2_000)}, {"image_url": _URL, "slack_file": ANYTHING}, ("image_url", "slack_file"))
_OPTION = Shape({"text": _text(75), "value": Text(150)}, {"description": _text(75)})
_OVERFLOW_OPTION = Shape({"text": _plain(75), "value": Text(150)}, {"description": _plain(75), "url": _URL})
_OPTIONS = Many(_OPTION, 100)
_GROUPS = Many(Shape({"label": _plain(75), "options": _OPTIONS}), 100)
_LABEL = {"accessibility_label": Text(75)}
_ACTIONABLE: dict[str, Schema] = {"action_id": _ID, "confirm": _CONFIRM, "focus_on_load": FLAG}
_MENU: dict[str, Schema] = {**_ACTIONABLE, "placeholder": _plain(150)}
_FEEDBACK = Shape({"text": _plain(75), "value": Text(2_000)}, {**_LABEL})
_TYPED: dict[str, Schema] = {
    "action_id": _ID,
    "placeholder": _plain(150),
    "initial_value": Text(3_000, least=0),
    "dispatch_action_config": ANYTHING,
    "focus_on_load": FLAG,
}

# The fields of a select menu by its source; a multi-select menu has `initial_users` for `initial_user`.
_SOURCES: dict[str, dict[str, Schema]] = {
    "static": {"options": _OPTIONS, "option_groups": _GROUPS, "initial_option": _OPTION},
    "external": {"min_query_length": WHOLE, "initial_option": _OPTION},
    "users": {"initial_user": _ID},
    "channels": {"initial_channel": _ID, "response_url_enabled": FLAG},
    "conversations": {
        "initial_conversation": _ID,
        "default_to_current_conversation": FLAG,
        "response_url_enabled": FLAG,
        "filter": ANYTHING,
    },
}


def _menus() -> Iterator[tuple[str, Schema]]:
    for source, fields in _SOURCES.items():
        either = ("options", "option_groups") if source == "static" else None
        yield f"{source}_select", Shape({}, {**_MENU, **fields}, either)
        several = {
            f"{n}s" if n.startswith("initial_") else n: Many(f, 100) if n.startswith("initial_") else f
            for n, f in fields.items()
        }
        yield f"multi_{source}_select", Shape({}, {**_MENU, "max_selected_items": WHOLE, **several}, either)


def _picker(name: str) -> Schema:
    return Shape({}, {**_MENU, f"initial_{name}": ANYTHING, "timezone": Text(100)})


_BUTTON = Shape(
    {"text": _plain(75)},
    {"action_id": _ID, "url": _URL, "value": Text(2_000), "style": _STYLE, "confirm": _CONFIRM, **_LABEL},
)
_INTERACTIVE: dict[str, Schema] = {
    "button": _BUTTON,
    "checkboxes": Shape({"options": Many(_OPTION, 10)}, {**_ACTIONABLE, "initial_options": Many(_OPTION, 10)}),
    "datepicker": _picker("date"),
    "datetimepicker": _picker("date_time"),
    "overflow": Shape({"options": Many(_OVERFLOW_OPTION, 5)}, {"action_id": _ID, "confirm": _CONFIRM}),
    "radio_buttons": Shape({"options": Many(_OPTION, 10)}, {**_ACTIONABLE, "initial_option": _OPTION}),
    "timepicker": _picker("time"),
    "workflow_button": ANYTHING,
    **dict(_menus()),
}
_CONTEXT_ACTIONS: dict[str, Schema] = {
    "feedback_buttons": Shape({"positive_button": _FEEDBACK, "negative_button": _FEEDBACK}, {"action_id": _ID}),
    "icon_button": Shape(
        {"icon": Choice("trash"), "text": _plain(75)},
        {
            "action_id": _ID,
            "value": Text(2_000),
            "confirm": _CONFIRM,
            "visible_to_user_ids": Many(_ID, 100, least=0),
            **_LABEL,
        },
    ),
}
_INPUTS: dict[str, Schema] = {
    "email_text_input": Shape({}, _TYPED),
    "file_input": Shape({}, {"action_id": _ID, "filetypes": ANYTHING, "max_files": WHOLE}),
    "number_input": Shape({"is_decimal_allowed": FLAG}, {**_TYPED, "min_value": ANYTHING, "max_value": ANYTHING}),
    "plain_text_input": Shape({}, {**_TYPED, "multiline": FLAG, "min_length": WHOLE, "max_length": WHOLE}),
    "rich_text_input": Shape({}, {**_TYPED, "initial_value": ANYTHING}),
    "url_text_input": Shape({}, _TYPED),
}

_STYLES = ("bold", "italic", "strike", "code", "underline", "highlight", "client_highlight", "unlink")
_STYLED: dict[str, Schema] = {"style": Shape({}, dict.fromkeys(_STYLES, FLAG))}
_RICH_TEXT = ByType(
    {
        "broadcast": Shape({"range": Choice("here", "channel", "everyone")}, _STYLED),
        "channel": Shape({"channel_id": _ID}, _STYLED),
        "color": Shape({"value": _ID}, _STYLED),
        "date": Shape({"timestamp": WHOLE, "format": _ID}, {**_STYLED, "url": _URL, "fallback": Text(3_000)}),
        "emoji": Shape(
            {"name": _ID}, {**_STYLED, "unicode": _ID, "skin_tone": WHOLE, "url": _URL, "display_url": _URL}
        ),
        "link": Shape({"url": _URL}, {**_STYLED, "text": Text(40_000, least=0), "unsafe": FLAG}),
        "team": Shape({"team_id": _ID}, _STYLED),
        "text": Shape({"text": Text(40_000)}, _STYLED),
        "user": Shape({"user_id": _ID}, _STYLED),
        "usergroup": Shape({"usergroup_id": _ID}, _STYLED),
    }
)
_RICH_LINE = Many(_RICH_TEXT, 10_000, least=0)
_RICH_SECTION = ByType({"rich_text_section": Shape({"elements": _RICH_LINE})})
_RICH_PARTS = ByType(
    {
        "rich_text_list": Shape(
            {"elements": Many(_RICH_SECTION, 10_000, least=0), "style": Choice("bullet", "ordered")},
            {"indent": WHOLE, "offset": WHOLE, "border": WHOLE},
        ),
        "rich_text_preformatted": Shape({"elements": _RICH_LINE}, {"border": WHOLE, "language": _ID}),
        "rich_text_quote": Shape({"elements": _RICH_LINE}, {"border": WHOLE}),
        "rich_text_section": Shape({"elements": _RICH_LINE}),
    }
)

_TEXT_OF_A_TASK = ByType({"rich_text": Shape({"elements": Many(_RICH_PARTS, 10_000, least=0)})})
_TASK = Shape(
    {"task_id": Text(255), "title": Text(256), "status": Choice("pending", "in_progress", "complete", "error")},
    {
        "details": _TEXT_OF_A_TASK,
        "output": _TEXT_OF_A_TASK,
        "sources": Many(ByType({"url": Shape({"url": _URL, "text": Text(256)})}), 50, least=0),
    },
)

_BLOCKS = {
    "actions": Shape({"elements": Many(ByType(_INTERACTIVE), 25)}),
    "context": Shape({"elements": Many(_text(SECTION_TEXT, image=_IMAGE), 10)}),
    "context_actions": Shape({"elements": Many(ByType(_CONTEXT_ACTIONS), 5)}),
    "divider": Shape(),
    "header": Shape({"text": _plain(150)}, {"level": WHOLE}),
    "image": Shape(
        {"alt_text": Text(2_000)},
        {"image_url": _URL, "slack_file": ANYTHING, "title": _plain(2_000)},
        ("image_url", "slack_file"),
    ),
    "input": Shape(
        {"label": _plain(2_000), "element": ByType({**_INTERACTIVE, **_INPUTS})},
        {"dispatch_action": FLAG, "hint": _plain(2_000), "optional": FLAG},
    ),
    "markdown": Shape({"text": Text(MARKDOWN_TEXT)}),
    "plan": Shape({"title": Text(256)}, {"tasks": Many(ByType({"task_card": _TASK}), 100, least=0)}),
    "rich_text": Shape({"elements": Many(_RICH_PARTS, 10_000, least=0)}),
    "section": Shape(
        {},
        {
            "text": _text(SECTION_TEXT),
            "fields": Many(_text(2_000), 10),
            "accessory": ByType({**_INTERACTIVE, "image": _IMAGE}),
            "expand": FLAG,
        },
        ("text", "fields"),
    ),
    "task_card": _TASK,
}
_UNCHECKED_BLOCKS = """
    alert call card carousel container data_table data_visualization file table video
""".split()  # noqa: SIM905 - as a list it fills a page
_BLOCK = ByType(
    {
        **{name: Shape(s.required, {**s.optional, "block_id": _ID}, s.either) for name, s in _BLOCKS.items()},
        **dict.fromkeys(_UNCHECKED_BLOCKS, ANYTHING),
    }
)


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
    wrong = list(Many(_BLOCK, most, least=0).problems(blocks, pointer))
    yield from wrong
    if not wrong:
        yield from _repeated(blocks, pointer)


def with_ids(blocks: Sequence[Json]) -> tuple[Json, ...]:
    """Add missing ids to blocks and to interactive elements, as Slack does."""
    return tuple(_with_ids(block) for block in blocks)


def _with_ids(block: Json) -> Json:
    named = {**block, "block_id": block.get("block_id") or secrets.token_hex(3)}
    if block["type"] in ("actions", "context_actions"):
        named["elements"] = [_actionable(element) for element in block["elements"]]
    place = {"section": "accessory", "input": "element"}.get(block["type"], "")
    if (element := block.get(place)) and element["type"] != "image":
        named[place] = _actionable(element)
    return named


def _actionable(element: Json) -> Json:
    return {**element, "action_id": element.get("action_id") or secrets.token_hex(3)}


def _repeated(blocks: Sequence[Json], pointer: str) -> Iterator[str]:
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
