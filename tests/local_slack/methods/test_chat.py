"""Posts, edits, deletions and reactions."""

from __future__ import annotations

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
    assert (message["user"], message["bot_id"]) == ("U0ALPHA", "B0ALPHA")
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
