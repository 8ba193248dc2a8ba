"""The blocks and elements of Block Kit that apps commonly use in messages (docs.slack.dev/reference/block-kit).

For newer blocks, only the type is checked.
"""

from __future__ import annotations

from local_slack.blocks.schema import ByType, Choice, Flag, Many, Schema, Shape, Text, Unchecked, Whole

SECTION_TEXT = 3_000
MARKDOWN_TEXT = 12_000
BLOCKS_OF_A_MESSAGE = 50
BLOCKS_OF_A_VIEW = 100

_ID = Text(255)
_URL = Text(3_000)


def _plain(longest: int) -> Schema:
    return ByType({"plain_text": Shape({"text": Text(longest)}, {"emoji": Flag()})})


def _text(longest: int) -> Schema:
    return ByType(_text_types(longest))


def _text_types(longest: int) -> dict[str, Schema]:
    return {
        "plain_text": Shape({"text": Text(longest)}, {"emoji": Flag()}),
        "mrkdwn": Shape({"text": Text(longest)}, {"verbatim": Flag()}),
    }


PLAIN_24 = _plain(24)
_STYLE = Choice(("primary", "danger"))
_CONFIRM = Shape(
    {"title": _plain(100), "text": _text(300), "confirm": _plain(30), "deny": _plain(30)}, {"style": _STYLE}
)
_IMAGE = Shape(
    {"alt_text": Text(2_000)}, {"image_url": _URL, "slack_file": Unchecked()}, (("image_url", "slack_file"),)
)
_OPTION = Shape({"text": _text(75), "value": Text(150)}, {"description": _text(75)})
_OVERFLOW_OPTION = Shape({"text": _plain(75), "value": Text(150)}, {"description": _plain(75), "url": _URL})
_OPTIONS = Many(_OPTION, 100)
_GROUPS = Many(Shape({"label": _plain(75), "options": _OPTIONS}), 100)
_LABEL = {"accessibility_label": Text(75)}
_ACTIONABLE: dict[str, Schema] = {"action_id": _ID, "confirm": _CONFIRM, "focus_on_load": Flag()}
_MENU: dict[str, Schema] = {**_ACTIONABLE, "placeholder": _plain(150)}
_SEVERAL: dict[str, Schema] = {"max_selected_items": Whole()}
_FEEDBACK = Shape({"text": _plain(75), "value": Text(2_000)}, {**_LABEL})
_TYPED: dict[str, Schema] = {
    "action_id": _ID,
    "placeholder": _plain(150),
    "initial_value": Text(3_000, least=0),
    "dispatch_action_config": Unchecked(),
    "focus_on_load": Flag(),
}


def _menus() -> dict[str, Schema]:
    """Return all select menus: single and multi-select, for each of the five sources."""
    sources: dict[str, Shape] = {
        "static": Shape(
            {},
            {"options": _OPTIONS, "option_groups": _GROUPS, "initial_option": _OPTION},
            (("options", "option_groups"),),
        ),
        "external": Shape({}, {"min_query_length": Whole(), "initial_option": _OPTION}),
        "users": Shape({}, {"initial_user": _ID}),
        "channels": Shape({}, {"initial_channel": _ID, "response_url_enabled": Flag()}),
        "conversations": Shape(
            {},
            {
                "initial_conversation": _ID,
                "default_to_current_conversation": Flag(),
                "response_url_enabled": Flag(),
                "filter": Unchecked(),
            },
        ),
    }
    one: dict[str, Schema] = {
        f"{name}_select": Shape({}, {**_MENU, **shape.optional}, shape.either) for name, shape in sources.items()
    }
    several: dict[str, Schema] = {
        f"multi_{name}_select": Shape({}, {**_MENU, **_SEVERAL, **_initial_list(shape)}, shape.either)
        for name, shape in sources.items()
    }
    return one | several


def _initial_list(shape: Shape) -> dict[str, Schema]:
    """Use plural field names: a multi-select menu has ``initial_users`` for ``initial_user``."""
    return {
        f"{name}s" if name.startswith("initial_") else name: Many(item, 100) if name.startswith("initial_") else item
        for name, item in shape.optional.items()
    }


def _picker(name: str) -> Schema:
    return Shape({}, {**_MENU, f"initial_{name}": Unchecked(), "timezone": Text(100)})


BUTTON = Shape(
    {"text": _plain(75)},
    {"action_id": _ID, "url": _URL, "value": Text(2_000), "style": _STYLE, "confirm": _CONFIRM, **_LABEL},
)
_INTERACTIVE: dict[str, Schema] = {
    "button": BUTTON,
    "checkboxes": Shape({"options": Many(_OPTION, 10)}, {**_ACTIONABLE, "initial_options": Many(_OPTION, 10)}),
    "datepicker": _picker("date"),
    "datetimepicker": _picker("date_time"),
    "overflow": Shape({"options": Many(_OVERFLOW_OPTION, 5)}, {"action_id": _ID, "confirm": _CONFIRM}),
    "radio_buttons": Shape({"options": Many(_OPTION, 10)}, {**_ACTIONABLE, "initial_option": _OPTION}),
    "timepicker": _picker("time"),
    "workflow_button": Unchecked(),
    **_menus(),
}
_CONTEXT_ACTIONS: dict[str, Schema] = {
    "feedback_buttons": Shape({"positive_button": _FEEDBACK, "negative_button": _FEEDBACK}, {"action_id": _ID}),
    "icon_button": Shape(
        {"icon": Choice(("trash",)), "text": _plain(75)},
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
    "file_input": Shape({}, {"action_id": _ID, "filetypes": Unchecked(), "max_files": Whole()}),
    "number_input": Shape(
        {"is_decimal_allowed": Flag()}, {**_TYPED, "min_value": Unchecked(), "max_value": Unchecked()}
    ),
    "plain_text_input": Shape({}, {**_TYPED, "multiline": Flag(), "min_length": Whole(), "max_length": Whole()}),
    "rich_text_input": Shape({}, {**_TYPED, "initial_value": Unchecked()}),
    "url_text_input": Shape({}, _TYPED),
}

_RICH_STYLE = Shape(
    {},
    {
        name: Flag()
        for name in ("bold", "italic", "strike", "code", "underline", "highlight", "client_highlight", "unlink")
    },
)
_STYLED: dict[str, Schema] = {"style": _RICH_STYLE}
_RICH_TEXT = ByType(
    {
        "broadcast": Shape({"range": Choice(("here", "channel", "everyone"))}, _STYLED),
        "channel": Shape({"channel_id": _ID}, _STYLED),
        "color": Shape({"value": _ID}, _STYLED),
        "date": Shape({"timestamp": Whole(), "format": _ID}, {**_STYLED, "url": _URL, "fallback": Text(3_000)}),
        "emoji": Shape(
            {"name": _ID}, {**_STYLED, "unicode": _ID, "skin_tone": Whole(), "url": _URL, "display_url": _URL}
        ),
        "link": Shape({"url": _URL}, {**_STYLED, "text": Text(40_000, least=0), "unsafe": Flag()}),
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
            {"elements": Many(_RICH_SECTION, 10_000, least=0), "style": Choice(("bullet", "ordered"))},
            {"indent": Whole(), "offset": Whole(), "border": Whole()},
        ),
        "rich_text_preformatted": Shape({"elements": _RICH_LINE}, {"border": Whole(), "language": _ID}),
        "rich_text_quote": Shape({"elements": _RICH_LINE}, {"border": Whole()}),
        "rich_text_section": Shape({"elements": _RICH_LINE}),
    }
)

_BLOCKS = {
    "actions": Shape({"elements": Many(ByType(_INTERACTIVE), 25)}),
    "context": Shape({"elements": Many(ByType({**_text_types(SECTION_TEXT), "image": _IMAGE}), 10)}),
    "context_actions": Shape({"elements": Many(ByType(_CONTEXT_ACTIONS), 5)}),
    "divider": Shape(),
    "header": Shape({"text": _plain(150)}, {"level": Whole()}),
    "image": Shape(
        {"alt_text": Text(2_000)},
        {"image_url": _URL, "slack_file": Unchecked(), "title": _plain(2_000)},
        (("image_url", "slack_file"),),
    ),
    "input": Shape(
        {"label": _plain(2_000), "element": ByType({**_INTERACTIVE, **_INPUTS})},
        {"dispatch_action": Flag(), "hint": _plain(2_000), "optional": Flag()},
    ),
    "markdown": Shape({"text": Text(MARKDOWN_TEXT)}),
    "rich_text": Shape({"elements": Many(_RICH_PARTS, 10_000, least=0)}),
    "section": Shape(
        {},
        {
            "text": _text(SECTION_TEXT),
            "fields": Many(_text(2_000), 10),
            "accessory": ByType({**_INTERACTIVE, "image": _IMAGE}),
            "expand": Flag(),
        },
        (("text", "fields"),),
    ),
}
_UNCHECKED_BLOCKS = (
    "alert",
    "call",
    "card",
    "carousel",
    "container",
    "data_table",
    "data_visualization",
    "file",
    "plan",
    "table",
    "task_card",
    "video",
)
BLOCK = ByType(
    {
        **{name: Shape(s.required, {**s.optional, "block_id": _ID}, s.either) for name, s in _BLOCKS.items()},
        **dict.fromkeys(_UNCHECKED_BLOCKS, Unchecked()),
    }
)
