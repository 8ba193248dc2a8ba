"""What Slack tells of messages, in its own words, and what of it a person wrote."""

from __future__ import annotations

import pytest

from connector.events import SlackMessage, deletion_of, edit_of, home_of, message_of, reaction_of

TS = "1760000000.000100"
LATER = "1760000060.000200"
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
WRITTEN = {
    "a post": {},
    "a reply": {"thread_ts": "1759999999.000100", "parent_user_id": "U2"},
    "a reply that is also sent to the channel": {
        "subtype": "thread_broadcast",
        "thread_ts": "1759999999.000100",
        "root": {"type": "message", "user": "U2", "text": "root", "ts": "1759999999.000100"},
    },
    "a file with words": {"subtype": "file_share", "files": [{"id": "F1", "name": "a.md"}], "upload": False},
    "a file without words": {"subtype": "file_share", "text": "", "files": [{"id": "F1", "name": "a.md"}]},
    "a mention": {"type": "app_mention", "channel_type": None},
    "a mention that an edit has added": {"type": "app_mention", "edited": {"user": "U1", "ts": LATER}},
    "a post from another workspace": {"user_team": "T2", "source_team": "T2", "user_profile": {"team": "T2"}},
    "a post with an unfurled link": {"attachments": [{"from_url": "https://example.com", "id": 1}]},
}
NOT_WRITTEN = {
    "our own post": {"user": "U0BOT", "bot_id": "B0BOT", "app_id": "A0BOT", "bot_profile": BOT_PROFILE},
    "another bot's post": {"user": "U0OTHER", "bot_id": "B0OTHER", "app_id": "A0OTHER", "bot_profile": BOT_PROFILE},
    "another bot's mention of us": {"type": "app_mention", "bot_id": "B0OTHER", "bot_profile": BOT_PROFILE},
    "a bot of which only the profile is told": {"bot_profile": BOT_PROFILE},
    "an old bot's post": {"subtype": "bot_message", "bot_id": "B0OTHER", "username": "Other", "user": None},
    "a post under a persona": {"subtype": "bot_message", "bot_id": "B0BOT", "username": "Alpha", "icons": {}},
    "Slackbot": {"user": "USLACKBOT"},
    "Slackbot's answer": {"subtype": "slackbot_response", "user": "USLACKBOT"},
    "somebody joins": {"subtype": "channel_join", "text": "<@U1> has joined the channel", "inviter": "U2"},
    "somebody leaves": {"subtype": "channel_leave", "text": "<@U1> has left the channel"},
    "somebody joins a private channel": {"subtype": "group_join"},
    "a topic": {"subtype": "channel_topic", "topic": "x", "text": "<@U1> set the channel topic: x"},
    "a purpose": {"subtype": "channel_purpose", "purpose": "x"},
    "a name": {"subtype": "channel_name", "old_name": "a", "name": "b"},
    "an archiving": {"subtype": "channel_archive"},
    "a pin": {"subtype": "pinned_item", "item_type": "C"},
    "a reminder": {"subtype": "reminder_add", "user": "USLACKBOT"},
    "a bot is added": {"subtype": "bot_add", "bot_id": "B0OTHER"},
    "a huddle": {"subtype": "huddle_thread", "user": "USLACKBOT", "room": {}},
    "a tombstone": {"subtype": "tombstone", "user": "USLACKBOT", "hidden": True},
    "an assistant's thread": {"subtype": "assistant_app_thread", "assistant_app_thread": {"title": "x"}},
    "a whole thread's news": {"subtype": "message_replied", "hidden": True},
    "nobody": {"user": None},
    "no words and no file": {"text": " \n", "files": []},
    "no text at all": {"text": None},
}


@pytest.mark.parametrize("more", WRITTEN.values(), ids=WRITTEN)
def test_what_a_person_wrote_is_a_message(more):
    message = message_of({**POSTED, **more}, "T1")
    assert message is not None
    assert (message.id, message.user, message.direct) == (f"T1:C1:{TS}", "U1", False)


@pytest.mark.parametrize("more", NOT_WRITTEN.values(), ids=NOT_WRITTEN)
def test_what_no_person_wrote_is_none(more):
    assert message_of({**POSTED, **more}, "T1") is None


def test_the_two_events_of_a_mention_are_one_message():
    mention = {key: POSTED[key] for key in POSTED if key != "channel_type"} | {"type": "app_mention"}
    assert message_of(mention, "T1") == message_of(POSTED, "T1")


def changed(before: dict, now: dict, **more: object) -> dict:
    return {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "message": {**inside(), "edited": {"user": "U1", "ts": LATER}, **now},
        "previous_message": {**inside(), **before},
        "channel": "C1",
        "channel_type": "channel",
        "ts": LATER,
        "event_ts": LATER,
        **more,
    }


def inside() -> dict:
    """A message in an event about it: where it stands is told outside."""
    return {key: POSTED[key] for key in POSTED if key not in ("channel", "channel_type", "event_ts")}


def test_another_text_is_an_edit():
    edit = edit_of(changed({}, {"text": "<@U0BOT> listen"}), "T1")
    assert edit is not None
    assert (edit.before.text, edit.message.text) == ("<@U0BOT> look", "<@U0BOT> listen")
    assert (edit.message.id, edit.id) == (f"T1:C1:{TS}", f"T1:C1:{TS}:edit:{LATER}")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {"attachments": [{"from_url": "https://example.com", "title": "Example"}], "edited": None}),
        ({"attachments": [{"id": 1}]}, {"attachments": []}),
        ({}, {"reply_count": 1, "reply_users": ["U2"], "latest_reply": LATER, "thread_ts": TS}),
        ({}, {"pinned_to": ["C1"], "pinned_info": {}}),
        ({"bot_id": "B0BOT", "user": "U0BOT"}, {"bot_id": "B0BOT", "user": "U0BOT", "text": "⚙️ Reading…"}),
        ({"subtype": "bot_message"}, {"subtype": "bot_message", "bot_id": "B0OTHER", "text": "other"}),
        ({}, {"subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted."}),
    ],
    ids=["unfurled", "unfurl taken away", "replied to", "pinned", "our status", "another bot's edit", "tombstone"],
)
def test_what_leaves_a_persons_text_alone_is_no_edit(before, now):
    assert edit_of(changed(before, now), "T1") is None


def test_a_deletion_is_of_the_message_that_was():
    event = {**changed({}, {}), "subtype": "message_deleted", "deleted_ts": TS}
    del event["message"]
    deletion = deletion_of(event, "T1")
    assert deletion is not None
    assert (deletion.message.id, deletion.message.text) == (f"T1:C1:{TS}", "<@U0BOT> look")


def test_a_tombstone_is_a_deletion():
    deletion = deletion_of(changed({}, {"subtype": "tombstone", "user": "USLACKBOT", "text": "deleted"}), "T1")
    assert deletion is not None
    assert deletion.message.user == "U1"


def test_a_bots_message_that_goes_is_no_deletion_of_a_persons():
    event = {**changed({"bot_id": "B0OTHER"}, {}), "subtype": "message_deleted", "deleted_ts": TS}
    assert deletion_of({**event, "message": None}, "T1") is None


@pytest.mark.parametrize("item", [{"type": "file", "file": "F1"}, {"type": "file_comment"}, {}, None])
def test_a_reaction_to_what_is_no_message_is_none(item):
    event = {"type": "reaction_added", "user": "U1", "reaction": "x", "item": item, "event_ts": LATER}
    assert reaction_of(event) is None


@pytest.mark.parametrize(
    ("told", "home"),
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
def test_where_somebody_belongs_to_is_told_with_their_message(told, home):
    assert home_of(told) == home


def message_with(text: str) -> SlackMessage:
    message = message_of({**POSTED, "text": text}, "T1")
    assert message is not None
    return message


def test_only_an_entity_is_a_mention_and_the_first_few_count():
    assert message_with("@U0ANA &lt;@U0BEN&gt; <@U0CAM> <@W1|ann> <@U0CAM> <#C1> <!here>").mentioned == ["U0CAM", "W1"]
    many = message_with(" ".join(f"<@U{number}>" for number in range(3_500)))
    assert many.mentioned == [f"U{number}" for number in range(20)]
