from __future__ import annotations

from itertools import product

import pytest

from connector.events import (
    SlackMessage,
    clicked_of,
    deletion_of,
    edit_of,
    home_of,
    message_of,
    plain_text,
    reaction_of,
    session_stop_of,
)

TS, LATER = "1760000000.000100", "1760000060.000200"
BOT_PROFILE = {"id": "B0OTHER", "app_id": "A0OTHER", "name": "Other", "deleted": False, "team_id": "T1"}
POSTED = {
    "type": "message",
    "client_msg_id": "7f2a4bfa-3a67-4d1c-9f3f-5a3ad1c6a1d1",
    "user": "U1",
    "text": "<@U0BOT> look",
    "ts": TS,
    "team": "T1",
    "blocks": [{"type": "rich_text", "block_id": "b", "elements": []}],
    "channel": "C1",
    "event_ts": TS,
    "channel_type": "channel",
}
BY_A_PERSON = {
    "a post": {},
    "a reply": {"thread_ts": "1759999999.000100", "parent_user_id": "U2"},
    "a reply that is also sent to the channel": {
        "subtype": "thread_broadcast",
        "thread_ts": "1759999999.000100",
        "root": {"type": "message", "user": "U2", "text": "root", "ts": "1759999999.000100"},
    },
    "a file with words": {"subtype": "file_share", "files": [{"id": "F1", "name": "a.md"}], "upload": False},
    "a file without words": {"subtype": "file_share", "text": "", "files": [{"id": "F1", "name": "a.md"}]},
    "an action (`/me …`)": {"subtype": "me_message"},
    "a mention": {"type": "app_mention", "channel_type": None},
    "a mention that an edit has added": {"type": "app_mention", "edited": {"user": "U1", "ts": LATER}},
    "a post from another workspace": {"user_team": "T2", "source_team": "T2", "user_profile": {"team": "T2"}},
    "a post with an unfurled link": {"attachments": [{"from_url": "https://example.com", "id": 1}]},
}
BY_NO_PERSON = {
    "a post by a bot without an id": {"subtype": "bot_message", "username": "Other"},
    "an app's post in direct messages": {"channel": "D1", "bot_id": "B0OTHER", "bot_profile": BOT_PROFILE},
    "Slackbot": {"user": "USLACKBOT"},
    "Slackbot's answer": {"subtype": "slackbot_response", "user": "USLACKBOT"},
    **{
        subtype: {"subtype": subtype}
        for subtype in (
            *("channel_join", "channel_leave", "group_join", "channel_topic", "channel_purpose", "channel_name"),
            *("channel_archive", "pinned_item", "bot_add", "message_replied", "assistant_app_thread"),
        )
    },
    **{
        subtype: {"subtype": subtype, "user": "USLACKBOT"} for subtype in ("reminder_add", "huddle_thread", "tombstone")
    },
    "no user": {"user": None},
    "no words and no file": {"text": " \n", "files": []},
    "no text": {"text": None},
}


BY_AN_APP = {
    "a post": {"user": "U0OTHER", "bot_id": "B0OTHER", "app_id": "A0OTHER", "bot_profile": BOT_PROFILE},
    "a mention": {"type": "app_mention", "user": "U0OTHER", "bot_id": "B0OTHER", "bot_profile": BOT_PROFILE},
    "a profile without a bot id": {"user": "U0OTHER", "bot_profile": BOT_PROFILE | {"id": "B0OTHER"}},
    "a post of an older app": {"subtype": "bot_message", "bot_id": "B0OTHER", "username": "Other", "user": None},
}


@pytest.mark.parametrize("fields", BY_AN_APP.values(), ids=BY_AN_APP)
def test_a_post_by_an_app_names_its_bot(fields):
    message = message_of({**POSTED, **fields}, "T1")
    assert message is not None
    assert (message.bot, bool(message.app)) == ("B0OTHER", True)
    assert message.user == (fields.get("user") or "B0OTHER")


@pytest.mark.parametrize("fields", BY_A_PERSON.values(), ids=BY_A_PERSON)
def test_a_post_by_a_person_is_a_message(fields):
    message = message_of({**POSTED, **fields}, "T1")
    assert message is not None
    assert (message.id, message.user, message.direct, message.bot) == (f"T1:C1:{TS}", "U1", False, "")


@pytest.mark.parametrize("fields", BY_NO_PERSON.values(), ids=BY_NO_PERSON)
def test_a_post_by_no_person_is_no_message(fields):
    assert message_of({**POSTED, **fields}, "T1") is None


def test_the_two_events_of_a_mention_are_one_message():
    mention = {key: POSTED[key] for key in POSTED if key != "channel_type"} | {"type": "app_mention"}
    assert message_of(mention, "T1") == message_of(POSTED, "T1")


def changed(before: dict, after: dict, **fields: object) -> dict:
    message = {key: POSTED[key] for key in POSTED if key not in ("channel", "channel_type", "event_ts")}
    return {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "message": {**message, "edited": {"user": "U1", "ts": LATER}, **after},
        "previous_message": {**message, **before},
        "channel": "C1",
        "channel_type": "channel",
        "ts": LATER,
        "event_ts": LATER,
        **fields,
    }


def test_a_new_text_is_an_edit():
    edit = edit_of(changed({}, {"text": "<@U0BOT> listen"}), "T1")
    assert edit is not None
    assert (edit.before.text, edit.message.text) == ("<@U0BOT> look", "<@U0BOT> listen")
    assert (edit.message.id, edit.id) == (f"T1:C1:{TS}", f"T1:C1:{TS}:edit:{LATER}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"attachments": [{"from_url": "https://example.com", "title": "Example"}], "edited": None}),
        ({"attachments": [{"id": 1}]}, {"attachments": []}),
        ({}, {"reply_count": 1, "reply_users": ["U2"], "latest_reply": LATER, "thread_ts": TS}),
        ({}, {"pinned_to": ["C1"], "pinned_info": {}}),
        ({}, {"subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted."}),
    ],
    ids=["unfurled", "unfurl removed", "reply", "pinned", "tombstone"],
)
def test_a_change_without_a_new_text_of_a_person_is_no_edit(before, after):
    assert edit_of(changed(before, after), "T1") is None


def test_a_deletion_and_a_tombstone_have_the_deleted_message():
    deleted = {**changed({}, {}), "subtype": "message_deleted", "deleted_ts": TS, "message": None}
    tombstone = changed({}, {"subtype": "tombstone", "user": "USLACKBOT", "text": "deleted"})
    for event in (deleted, tombstone):
        message = deletion_of(event, "T1").message
        assert (message.id, message.user, message.text) == (f"T1:C1:{TS}", "U1", "<@U0BOT> look")


@pytest.mark.parametrize("item", [{"type": "file", "file": "F1"}, {"type": "file_comment"}, {}, None])
def test_a_reaction_to_no_message_is_ignored(item):
    event = {"type": "reaction_added", "user": "U1", "reaction": "x", "item": item, "event_ts": LATER}
    assert reaction_of(event) is None


@pytest.mark.parametrize("missing", ["user", "channel", "event_ts"])
def test_an_incomplete_stop_of_a_session_is_ignored(missing):
    event = {"type": "agent_session_stopped", "user": "U1", "channel": "C1", "thread_ts": "1.0", "event_ts": "2.0"}
    assert session_stop_of(event, "T1") is not None
    assert session_stop_of({key: value for key, value in event.items() if key != missing}, "T1") is None


@pytest.mark.parametrize(
    ("part", "value"), [*product(["user", "channel", "container", "message", "actions"], [None, {}])]
)
def test_an_incomplete_click_is_ignored_if_its_user_or_its_thread_is_unknown(part, value):
    click = {
        "user": {"id": "U1"},
        "channel": {"id": "C1"},
        "container": {"message_ts": "2.0", "channel_id": "C1", "thread_ts": "1.0"},
        "message": {"ts": "2.0", "thread_ts": "1.0"},
        "actions": [{"action_id": "stop", "value": "run", "action_ts": "3.0"}],
    }
    found = clicked_of({**click, part: value}, "T1")
    if part in ("user", "actions"):
        assert found is None
    else:
        assert found is not None
        assert found[0].conversation_id == "T1:C1:1.0"


@pytest.mark.parametrize(
    ("fields", "home"),
    [
        ({}, None),
        ({"team": "T1"}, "T1"),
        ({"team": "T1", "user_team": "T2"}, "T2"),
        ({"team": "T1", "source_team": "T2"}, "T2"),
        ({"team": "E1"}, "E1"),
        ({"team": "T1", "user_team": "E2"}, "E2"),
        ({"team": "T1", "source_team": "E2", "user_team": "E2"}, "E2"),
        ({"team": "T1", "source_team": "E2", "user_team": "T2"}, "T2"),
        ({"team": None, "user_team": 7}, None),
    ],
)
def test_the_workspace_of_an_author_is_in_the_message(fields, home):
    assert home_of(fields) == home


def message_with(text: str) -> SlackMessage:
    message = message_of({**POSTED, "text": text}, "T1")
    assert message is not None
    return message


def test_only_entities_are_mentions_and_the_first_twenty_are_read():
    assert message_with("@U0ANA &lt;@U0BEN&gt; <@U0CAM> <@W1|ann> <@U0CAM> <#C1> <!here>").mentioned == ["U0CAM", "W1"]
    many = message_with(" ".join(f"<@U{number}>" for number in range(3_500)))
    assert many.mentioned == [f"U{number}" for number in range(20)]


@pytest.mark.parametrize(
    ("slack", "plain"),
    [
        (
            "ask <@U2|ben> in <#C1|general> about <https://a.b/c|that> &amp; &lt;this&gt;",
            "ask @U2 in #general about that (https://a.b/c) & <this>",
        ),
        (":tada: 👩‍👩‍👧 🏴󠁧󠁢󠁳󠁣󠁴󠁿", ":tada: 👩‍👩‍👧 🏴󠁧󠁢󠁳󠁣󠁴󠁿"),
        ("&gt; quoted\n&gt; twice", "> quoted\n> twice"),
        ("```\nif a &lt; b:\n    stop\n```", "```\nif a < b:\n    stop\n```"),
        ("bell \x07 and escape \x1b[31mred", "bell \x07 and escape \x1b[31mred"),
        ("&amp;lt;not a tag&amp;gt;", "&lt;not a tag&gt;"),
        ("a <b", "a <b"),
        ("<https://a.b/?x=1&amp;y=2>", "https://a.b/?x=1&y=2"),
        ("<!here> <!date^1^{date}|today>", "@here @date"),
        ("x" * 30_000, "x" * 30_000),
        (f"&#{'9' * 5000}; &amp;#62; &eacute;", f"&#{'9' * 5000}; &#62; &eacute;"),
    ],
)
def test_the_markup_of_slack_becomes_plain_text(slack, plain):
    assert plain_text(f"<@U0BOT> {slack}", "U0BOT") == plain
