"""Posts, edits, deletions and reactions."""

from __future__ import annotations

import time

import pytest
from slack_errors import error_of

HERE = {"channel": "C0GENERAL"}


@pytest.fixture
def post(client):
    return lambda text="hi", **fields: client.chat_postMessage(**HERE, text=text, **fields)


async def test_a_post_of_the_bot_has_the_fields_of_a_bot(post):
    answer = await post()
    message = answer["message"]
    assert answer["channel"] == "C0GENERAL"
    assert (message["user"], message["bot_id"], message["app_id"]) == ("U0ALPHA", "B0ALPHA", "A0ALPHA")
    assert message["bot_profile"]["name"] == "Alpha"
    assert "subtype" not in message


async def test_a_post_with_a_persona_cannot_be_edited(client, post):
    posted = await post(username="Ada", icon_emoji=":robot_face:")
    message = posted["message"]
    assert (message["subtype"], message["username"]) == ("bot_message", "Ada")
    assert message["icons"] == {"emoji": ":robot_face:"}
    assert (message.get("user"), message["bot_id"]) == (None, "B0ALPHA")
    assert await error_of(client.chat_update(**HERE, ts=posted["ts"], text="bye")) == "cant_update_message"
    await client.chat_delete(**HERE, ts=posted["ts"])


async def test_a_reply_to_a_reply_belongs_to_the_root(slack, ana):
    root = await ana.say("general", "root")
    first = await slack.as_person("ben").say("general", "first", thread=root)
    second = await ana.say("general", "second", thread=first)
    thread = slack.workspace.thread("general", root)
    assert [message.ts for message in thread] == [root, first, second]
    assert thread[0].reply_count == 2
    assert thread[0].thread.reply_users == (slack.person("ben").id, slack.person("ana").id)
    assert thread[0].thread.latest_reply == second
    assert thread[2].thread_ts == root
    assert all(len(ts.partition(".")[2]) == 6 for ts in (root, first, second))


async def test_a_reply_to_a_deleted_message_is_a_message_of_the_channel(ana, post):
    root = await ana.say("general", "soon gone")
    await ana.delete("general", root)
    assert "thread_ts" not in (await post("late", thread_ts=root))["message"]


async def test_a_deleted_root_is_a_tombstone_until_its_last_reply_is_deleted(slack, ana, client, post):
    root = await ana.say("general", "question")
    reply = await post("answer", thread_ts=root)
    await ana.delete("general", root)
    history = await client.conversations_history(**HERE)
    assert [(m["subtype"], m["text"]) for m in history["messages"]] == [("tombstone", "This message was deleted.")]
    later = await post("more", thread_ts=root)
    assert later["message"]["thread_ts"] == root
    await client.chat_delete(**HERE, ts=reply["ts"])
    await client.chat_delete(**HERE, ts=later["ts"])
    assert slack.workspace.messages("general") == ()


async def test_only_the_author_can_edit_and_delete_a_message(slack, ana, client):
    ts = await ana.say("general", "one")
    await ana.edit("general", ts, "two")
    message = slack.workspace.message("general", ts)
    assert (message.text, message.edited is not None) == ("two", True)
    assert await error_of(client.chat_update(**HERE, ts=ts, text="x")) == "cant_update_message"
    assert await error_of(client.chat_delete(**HERE, ts=ts)) == "cant_delete_message"
    assert await error_of(slack.as_person("ben").delete("general", ts)) == "cant_delete_message"
    await ana.delete("general", ts)
    assert await error_of(client.chat_delete(**HERE, ts=ts)) == "message_not_found"
    assert await error_of(client.chat_update(**HERE, ts=ts, text="x")) == "message_not_found"


async def test_an_update_keeps_fields_that_it_does_not_contain(slack, client, post):
    block = {"type": "section", "block_id": "one", "text": {"type": "mrkdwn", "text": "*hi*"}}
    metadata = {"event_type": "run", "event_payload": {"id": "1"}}
    ts = (await post("a", blocks=[block], metadata=metadata))["ts"]
    await client.chat_update(**HERE, ts=ts, text="b")
    (message,) = slack.workspace.messages("general")
    assert (message.text, message.blocks, message.metadata) == ("b", (block,), metadata)
    await client.chat_update(**HERE, ts=ts, text="c", blocks=[])
    assert slack.workspace.messages("general")[0].blocks == ()


async def test_an_update_may_be_shorter_than_a_post(client, post):
    ts = (await post("x" * 40_000))["ts"]
    assert await error_of(post("x" * 40_001)) == "msg_too_long"
    await client.chat_update(**HERE, ts=ts, text="x" * 4_000)
    assert await error_of(client.chat_update(**HERE, ts=ts, text="x" * 4_001)) == "msg_too_long"


async def test_reactions_keep_their_order(slack, ana, client):
    ts = await ana.say("general", "look")
    here = {**HERE, "timestamp": ts}
    await client.reactions_add(**here, name="eyes")
    await ana.react("general", ts, "x")
    await ana.react("general", ts, "eyes")
    answer = await client.reactions_get(**here)
    assert [(r["name"], r["users"], r["count"]) for r in answer["message"]["reactions"]] == [
        ("eyes", ["U0ALPHA", "U0ANA"], 2),
        ("x", ["U0ANA"], 1),
    ]
    assert await error_of(client.reactions_add(**here, name="eyes")) == "already_reacted"
    assert await error_of(client.reactions_add(**here, name=":eyes:")) == "invalid_name"
    missing = client.reactions_add(**HERE, timestamp="1700000000.000100", name="eyes")
    assert await error_of(missing) == "message_not_found"
    assert await error_of(client.reactions_remove(**here, name="x")) == "no_reaction"
    await client.reactions_remove(**here, name="eyes")
    await ana.unreact("general", ts, "eyes")
    message = slack.workspace.message("general", ts)
    assert [reaction.name for reaction in message.reactions] == ["x"]
    assert message.reacted("x", by=slack.person("ana").id)


async def test_an_ephemeral_message_is_not_in_the_history(slack, client):
    await client.chat_postEphemeral(**HERE, user="U0ANA", text="psst")
    assert [message.text for message in slack.workspace.whispers("general")] == ["psst"]
    assert (await client.conversations_history(**HERE))["messages"] == []
    assert await error_of(client.chat_postEphemeral(**HERE, user="U0NOBODY", text="psst")) == "user_not_in_channel"


async def test_at_name_becomes_a_mention(slack, ana):
    await ana.say("general", "@alpha. ask @ben, not mail@ben.org or @stranger <@U0ALPHA>")
    assert slack.workspace.messages("general")[0].text == (
        "<@U0ALPHA>. ask <@U0BEN>, not mail@ben.org or @stranger <@U0ALPHA>"
    )


async def test_a_scheduled_message_is_posted_at_its_time(slack, client):
    post_at = int(time.time()) + 2
    scheduled = await client.chat_scheduleMessage(**HERE, text="later", post_at=post_at)
    listed = (await client.chat_scheduledMessages_list())["scheduled_messages"]
    assert [(each["id"], each["post_at"]) for each in listed] == [(scheduled["scheduled_message_id"], post_at)]
    await slack.until(lambda workspace: workspace.messages("general"))
    assert slack.workspace.messages("general")[0].text == "later"
    assert float(slack.workspace.messages("general")[0].ts) >= post_at - 0.1
    assert (await client.chat_scheduledMessages_list())["scheduled_messages"] == []


async def test_a_scheduled_message_can_be_deleted_until_a_minute_before(slack, client, clock):
    later, soon = [
        (await client.chat_scheduleMessage(**HERE, text="x", post_at=int(clock.now) + s))["scheduled_message_id"]
        for s in (3600, 30)
    ]
    assert await error_of(client.chat_deleteScheduledMessage(**HERE, scheduled_message_id=soon)) == (
        "invalid_scheduled_message_id"
    )
    await client.chat_deleteScheduledMessage(**HERE, scheduled_message_id=later)
    listed = (await client.chat_scheduledMessages_list(channel="C0GENERAL"))["scheduled_messages"]
    assert [each["id"] for each in listed] == [soon]


@pytest.mark.parametrize(("seconds", "error"), [(-1, "time_in_past"), (121 * 24 * 3600, "time_too_far")])
async def test_a_message_is_not_scheduled_for_an_impossible_time(client, clock, seconds, error):
    call = client.chat_scheduleMessage(**HERE, text="x", post_at=int(clock.now) + seconds)
    assert await error_of(call) == error


async def test_at_most_thirty_messages_of_a_channel_are_scheduled_for_five_minutes(client, clock):
    times = [int(clock.now) + 1000 + number for number in range(31)]
    for post_at in times[:30]:
        await client.chat_scheduleMessage(**HERE, text="x", post_at=post_at)
    refused = client.chat_scheduleMessage(**HERE, text="x", post_at=times[30])
    assert await error_of(refused) == "restricted_too_many"
    await client.chat_scheduleMessage(**HERE, text="x", post_at=times[30] + 600)


async def test_the_answer_to_an_update_has_the_metadata(client, post):
    ts = (await post())["ts"]
    metadata = {"event_type": "seen", "event_payload": {"by": "U0ANA"}}
    updated = await client.chat_update(**HERE, ts=ts, text="bye", metadata=metadata)
    assert updated["message"]["metadata"] == metadata


@pytest.mark.parametrize(
    "metadata", [{"event_type": "seen", "event_payload": None}, {"entities": [{"entity_type": "slack#/entities/task"}]}]
)
async def test_metadata_may_have_no_payload_or_only_work_objects(client, post, metadata):
    ts = (await post(metadata=metadata))["ts"]
    read = await client.conversations_replies(channel="C0GENERAL", ts=ts, include_all_metadata=True)
    assert read["messages"][0]["metadata"] == metadata


@pytest.mark.parametrize("metadata", [{"event_payload": {}}, {"entities": ["x"]}, {"event_type": "x", "entities": {}}])
async def test_metadata_without_an_event_or_with_invalid_work_objects_are_refused(post, metadata):
    assert await error_of(post(metadata=metadata)) == "invalid_metadata_format"


async def test_the_messages_that_a_user_has_reacted_to_are_listed_newest_first(ana, client):
    one, two, _ = [await ana.say("general", text) for text in ("one", "two", "three")]
    for ts in (one, two):
        await client.reactions_add(**HERE, timestamp=ts, name="eyes")
    listed = (await client.reactions_list())["items"]
    assert [item["message"]["text"] for item in listed] == ["two", "one"]
    assert (await client.reactions_list(user="U0ANA"))["items"] == []
