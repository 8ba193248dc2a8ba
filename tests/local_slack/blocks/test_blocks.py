"""Validation of blocks, with Slack's limits and messages."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.errors import SlackApiError

from local_slack import SlackRefused
from local_slack.blocks.blocks import check_blocks, with_ids


def plain(text="hi"):
    return {"type": "plain_text", "text": text}


def mrkdwn(text="hi"):
    return {"type": "mrkdwn", "text": text}


def section(text="hi", **more):
    return {"type": "section", "text": mrkdwn(text), **more}


def button(action_id="go", **more):
    return {"type": "button", "text": plain("Go"), "action_id": action_id, **more}


def actions(*elements, **more):
    return {"type": "actions", "elements": list(elements), **more}


def option(value="a"):
    return {"text": plain(value), "value": value}


def rich(*parts):
    return {"type": "rich_text", "elements": list(parts)}


LINE = {
    "type": "rich_text_section",
    "elements": [
        {"type": "text", "text": "so ", "style": {"bold": True}},
        {"type": "link", "url": "https://example.org", "text": "there"},
        {"type": "user", "user_id": "U0ANA"},
        {"type": "emoji", "name": "wave"},
    ],
}
FEEDBACK = {
    "type": "feedback_buttons",
    "action_id": "feedback",
    "positive_button": {"text": plain("Good"), "value": "good"},
    "negative_button": {"text": plain("Bad"), "value": "bad"},
}

VALID = [
    section("x" * 3_000),
    {"type": "section", "fields": [mrkdwn("x" * 1_000), plain()]},
    section(accessory=button(style="danger", value="x" * 2_000)),
    section(accessory={"type": "image", "image_url": "https://example.org/a.png", "alt_text": "a"}),
    section(accessory={"type": "overflow", "action_id": "more", "options": [option("a"), option("b")]}),
    {"type": "header", "text": plain("x" * 150)},
    {"type": "context", "elements": [mrkdwn(), {"type": "image", "image_url": "https://e.org/a", "alt_text": "a"}]},
    actions(*[button(f"b{number}") for number in range(25)]),
    actions({"type": "static_select", "placeholder": plain(), "options": [option()], "initial_option": option()}),
    actions({"type": "static_select", "option_groups": [{"label": plain(), "options": [option()]}]}),
    actions({"type": "multi_users_select", "initial_users": ["U0ANA"], "max_selected_items": 2}),
    actions(button(confirm={"title": plain(), "text": mrkdwn(), "confirm": plain(), "deny": plain()})),
    {"type": "divider"},
    {"type": "markdown", "text": "x" * 12_000},
    rich(LINE, {"type": "rich_text_list", "style": "bullet", "elements": [LINE], "indent": 1}),
    rich({"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "code"}]}),
    rich({"type": "rich_text_quote", "elements": []}),
    {"type": "image", "image_url": "https://example.org/a.png", "alt_text": "a", "title": plain()},
    {"type": "input", "label": plain(), "element": {"type": "plain_text_input", "multiline": True}, "optional": True},
    {"type": "context_actions", "elements": [FEEDBACK, {"type": "icon_button", "icon": "trash", "text": plain()}]},
    {"type": "video", "anything": "goes"},
]

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "elements", "block_id", "accessory"]), inner, max_size=3)
    ),
    max_leaves=8,
)

INVALID = [
    ({}, "missing required field: type", ""),
    ({"type": "sektion"}, "unsupported type: sektion", "type"),
    ({"type": ["section"]}, "unsupported type: ['section']", "type"),
    ({"type": "section"}, "must define either `text` or `fields`", ""),
    (section(""), "must be more than 0 characters", "text/text"),
    (section("x" * 3_001), "must be less than 3001 characters", "text/text"),
    (section(colour="red"), "invalid additional property: colour", ""),
    ({"type": "section", "text": "hi"}, "must provide an object", "text"),
    ({"type": "section", "text": {**mrkdwn(), "emoji": True}}, "invalid additional property: emoji", "text"),
    ({"type": "section", "fields": [plain()] * 11}, "no more than 10 items allowed", "fields"),
    ({"type": "header", "text": mrkdwn()}, "unsupported type: mrkdwn", "text/type"),
    ({"type": "header", "text": plain("x" * 151)}, "must be less than 151 characters", "text/text"),
    ({"type": "context", "elements": []}, "no less than 1 items allowed", "elements"),
    ({"type": "actions"}, "missing required field: elements", ""),
    (actions(*[button(f"b{number}") for number in range(26)]), "no more than 25 items allowed", "elements"),
    (actions(button(text=plain(""))), "must be more than 0 characters", "elements/0/text/text"),
    (actions(button(text=plain("x" * 76))), "must be less than 76 characters", "elements/0/text/text"),
    (actions(button(value="x" * 2_001)), "must be less than 2001 characters", "elements/0/value"),
    (actions(button(style="warning")), "must be a valid enum value", "elements/0/style"),
    (actions(button(), button()), '`action_id` "go" already exists for another element', "elements/1/action_id"),
    (actions({"type": "plain_text_input"}), "unsupported type: plain_text_input", "elements/0/type"),
    (
        actions({"type": "overflow", "options": [option(str(number)) for number in range(6)]}),
        "no more than 5 items allowed",
        "elements/0/options",
    ),
    (actions({"type": "static_select"}), "must define either `options` or `option_groups`", "elements/0"),
    ({"type": "divider", "block_id": "x" * 256}, "must be less than 256 characters", "block_id"),
    ({"type": "image", "image_url": "https://example.org"}, "missing required field: alt_text", ""),
    ({"type": "markdown", "text": ""}, "must be more than 0 characters", "text"),
    (rich({"type": "text"}), "unsupported type: text", "elements/0/type"),
    (
        rich({"type": "rich_text_list", "style": "round", "elements": []}),
        "must be a valid enum value",
        "elements/0/style",
    ),
    ({"type": "context_actions", "elements": [button()]}, "unsupported type: button", "elements/0/type"),
    ({"type": "input", "label": plain()}, "missing required field: element", ""),
]


@pytest.mark.parametrize("block", VALID, ids=lambda block: str(block["type"]))
def test_a_valid_block_is_accepted(block):
    check_blocks([block])


@pytest.mark.parametrize(("block", "problem", "place"), INVALID)
def test_an_invalid_block_is_refused_with_its_json_pointer(block, problem, place):
    with pytest.raises(SlackRefused) as refused:
        check_blocks([block])
    assert refused.value.code == "invalid_blocks"
    pointer = f"/blocks/0/{place}".rstrip("/")
    assert f"[ERROR] {problem} [json-pointer:{pointer}]" in refused.value.messages


def test_block_ids_are_unique_in_a_message_and_action_ids_in_a_block():
    check_blocks([actions(button(), block_id="a"), actions(button(), block_id="b")])
    with pytest.raises(SlackRefused, match="invalid_blocks") as refused:
        check_blocks([section(block_id="a"), section(block_id="a")])
    assert refused.value.messages == (
        '[ERROR] `block_id` "a" already exists for another block [json-pointer:/blocks/1/block_id]',
    )


def test_the_total_text_of_a_message_is_limited():
    check_blocks([section("x" * 2_600)] * 5)
    with pytest.raises(SlackRefused, match="msg_blocks_too_long"):
        check_blocks([section("x" * 2_700)] * 5)


@settings(max_examples=50)
@given(st.lists(ANYTHING, max_size=4), st.randoms(use_true_random=False))
def test_any_value_is_accepted_or_refused(blocks, random):
    odd = [None, 1, "x", [], {}, [None], [{}], ["x"]]
    changed = [{**valid, random.choice(list(valid)): random.choice(odd)} for valid in random.sample(VALID, 2)]
    with contextlib.suppress(SlackRefused):
        check_blocks([*blocks, *changed])
        assert all(block["block_id"] for block in with_ids([*blocks, *changed]))


async def test_the_answer_contains_all_messages(client):
    with pytest.raises(SlackApiError) as refused:
        await client.chat_postMessage(channel="C0GENERAL", text="t", blocks=[section(""), {"type": "divide"}])
    messages = [
        "must be more than 0 characters [json-pointer:/blocks/0/text/text]",
        "unsupported type: divide [json-pointer:/blocks/1/type]",
    ]
    answer = refused.value.response
    assert (answer["error"], answer["errors"]) == ("invalid_blocks", messages)
    assert answer["response_metadata"]["messages"] == [f"[ERROR] {each}" for each in messages]


async def test_blocks_need_no_text_and_get_missing_ids(slack, client):
    unnamed = {"type": "button", "text": plain("Go")}
    blocks = [section(block_id="mine"), actions(unnamed)]
    await client.api_call("chat.postMessage", json={"channel": "C0GENERAL", "blocks": blocks})
    first, second = slack.workspace.messages("general")[0].blocks
    assert first["block_id"] == "mine"
    assert second["block_id"]
    assert second["elements"][0]["action_id"]


async def test_blocks_of_an_attachment_are_validated(client):
    with pytest.raises(SlackApiError) as refused:
        await client.chat_postMessage(channel="C0GENERAL", text="t", attachments=[{"blocks": [{"type": "x"}]}])
    assert refused.value.response["errors"] == ["unsupported type: x [json-pointer:/attachments/0/blocks/0/type]"]
