"""Posting, editing, deleting and reacting, through slack_sdk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from slack_sdk.errors import SlackApiError

from local_slack import LocalSlack, SlackRefused

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient


async def refused(awaitable: object) -> str:
    with pytest.raises(SlackApiError) as caught:
        await awaitable  # type: ignore[misc]
    return str(caught.value.response["error"])


async def test_a_post_of_the_bot_has_the_fields_of_a_bot(slack: LocalSlack, client: AsyncWebClient) -> None:
    answer = await client.chat_postMessage(channel="C0GENERAL", text="hello")
    message = answer["message"]
    assert answer["channel"] == "C0GENERAL"
    assert (message["user"], message["bot_id"], message["app_id"]) == ("U0ALPHA", "B0ALPHA", "A0ALPHA")
    assert message["bot_profile"]["name"] == "Alpha"
    assert "subtype" not in message


async def test_a_persona_gives_name_and_icon_and_can_not_be_edited(slack: LocalSlack, client: AsyncWebClient) -> None:
    posted = await client.chat_postMessage(channel="C0GENERAL", text="hi", username="Ada", icon_emoji=":robot_face:")
    message = posted["message"]
    assert (message["subtype"], message["username"]) == ("bot_message", "Ada")
    assert message["icons"] == {"emoji": ":robot_face:"}
    assert (message["user"], message["bot_id"]) == ("U0ALPHA", "B0ALPHA")
    edit = client.chat_update(channel="C0GENERAL", ts=posted["ts"], text="bye")
    assert await refused(edit) == "cant_update_message"
    await client.chat_delete(channel="C0GENERAL", ts=posted["ts"])


async def test_timestamps_are_unique_and_rise(slack: LocalSlack) -> None:
    for number in range(20):
        await slack.as_person("ana").say("general", str(number))
    stamps = [message.ts for message in slack.workspace.messages("general")]
    assert stamps == sorted(set(stamps))
    assert all(len(ts.partition(".")[2]) == 6 for ts in stamps)


async def test_a_reply_to_a_reply_goes_under_the_root(slack: LocalSlack) -> None:
    ana, ben = slack.as_person("ana"), slack.as_person("ben")
    root = await ana.say("general", "root")
    first = await ben.say("general", "first", thread=root)
    second = await ana.say("general", "second", thread=first)
    thread = slack.workspace.thread("general", root)
    assert [message.ts for message in thread] == [root, first, second]
    assert thread[0].thread is not None
    assert thread[0].reply_count == 2
    assert thread[0].thread.reply_users == (slack.person("ben").id, slack.person("ana").id)
    assert thread[0].thread.latest_reply == second
    assert thread[2].thread_ts == root


async def test_a_reply_to_a_message_that_is_gone_lands_in_the_channel_unthreaded(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    ana = slack.as_person("ana")
    root = await ana.say("general", "soon gone")
    await ana.delete("general", root)
    answer = await client.chat_postMessage(channel="C0GENERAL", text="late", thread_ts=root)
    assert "thread_ts" not in answer["message"]


async def test_a_deleted_root_with_replies_stays_as_a_tombstone_until_its_last_reply_goes(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    ana = slack.as_person("ana")
    root = await ana.say("general", "question")
    reply = await client.chat_postMessage(channel="C0GENERAL", text="answer", thread_ts=root)
    await ana.delete("general", root)
    history = await client.conversations_history(channel="C0GENERAL")
    assert [(m["subtype"], m["text"]) for m in history["messages"]] == [("tombstone", "This message was deleted.")]
    later = await client.chat_postMessage(channel="C0GENERAL", text="more", thread_ts=root)
    assert later["message"]["thread_ts"] == root
    await client.chat_delete(channel="C0GENERAL", ts=reply["ts"])
    await client.chat_delete(channel="C0GENERAL", ts=later["ts"])
    assert slack.workspace.messages("general") == ()


async def test_a_message_can_be_edited_and_deleted_by_its_author_only(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    ana, ben = slack.as_person("ana"), slack.as_person("ben")
    ts = await ana.say("general", "one")
    await ana.edit("general", ts, "two")
    message = slack.workspace.message("general", ts)
    assert message is not None
    assert message.text == "two"
    assert message.edited is not None
    assert await refused(client.chat_update(channel="C0GENERAL", ts=ts, text="x")) == "cant_update_message"
    assert await refused(client.chat_delete(channel="C0GENERAL", ts=ts)) == "cant_delete_message"
    with pytest.raises(SlackRefused, match="cant_delete_message"):
        await ben.delete("general", ts)
    await ana.delete("general", ts)
    assert await refused(client.chat_delete(channel="C0GENERAL", ts=ts)) == "message_not_found"
    assert await refused(client.chat_update(channel="C0GENERAL", ts=ts, text="x")) == "message_not_found"


async def test_an_update_keeps_what_it_does_not_name(slack: LocalSlack, client: AsyncWebClient) -> None:
    block = {"type": "section", "block_id": "one", "text": {"type": "mrkdwn", "text": "*hi*"}}
    metadata = {"event_type": "run", "event_payload": {"id": "1"}}
    ts = (await client.chat_postMessage(channel="C0GENERAL", text="a", blocks=[block], metadata=metadata))["ts"]
    await client.chat_update(channel="C0GENERAL", ts=ts, text="b")
    message = slack.workspace.messages("general")[0]
    assert (message.text, message.blocks, message.metadata) == ("b", (block,), metadata)
    await client.chat_update(channel="C0GENERAL", ts=ts, text="c", blocks=[])
    assert slack.workspace.messages("general")[0].blocks == ()


async def test_too_long_is_refused_earlier_for_an_update_than_for_a_post(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    ts = (await client.chat_postMessage(channel="C0GENERAL", text="x" * 40_000))["ts"]
    assert await refused(client.chat_postMessage(channel="C0GENERAL", text="x" * 40_001)) == "msg_too_long"
    await client.chat_update(channel="C0GENERAL", ts=ts, text="x" * 4_000)
    assert await refused(client.chat_update(channel="C0GENERAL", ts=ts, text="x" * 4_001)) == "msg_too_long"


async def test_blocks_have_their_limits(client: AsyncWebClient) -> None:
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3_001}}
    markdown = {"type": "markdown", "text": "x" * 6_001}

    async def post(*blocks: dict[str, object]) -> str:
        return await refused(client.chat_postMessage(channel="C0GENERAL", text="t", blocks=list(blocks)))

    assert await post(section) == "invalid_blocks"
    assert await post(*[{"type": "divider"}] * 51) == "invalid_blocks"
    assert await post(markdown, markdown) == "msg_blocks_too_long"
    unparsable = client.chat_postMessage(channel="C0GENERAL", text="t", blocks="[{")
    assert await refused(unparsable) == "invalid_blocks_format"


async def test_an_empty_post_is_refused(slack: LocalSlack) -> None:
    with pytest.raises(SlackRefused, match="no_text"):
        await slack.as_person("ana").say("general", "  ")


async def test_reactions_keep_their_order_and_refuse_what_makes_no_sense(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    ana = slack.as_person("ana")
    ts = await ana.say("general", "look")
    await client.reactions_add(channel="C0GENERAL", timestamp=ts, name="eyes")
    await ana.react("general", ts, "x")
    await ana.react("general", ts, "eyes")
    answer = await client.reactions_get(channel="C0GENERAL", timestamp=ts)
    assert [(r["name"], r["users"], r["count"]) for r in answer["message"]["reactions"]] == [
        ("eyes", ["U0ALPHA", "U0ANA"], 2),
        ("x", ["U0ANA"], 1),
    ]

    async def add(name: str, timestamp: str = ts) -> str:
        return await refused(client.reactions_add(channel="C0GENERAL", timestamp=timestamp, name=name))

    assert await add("eyes") == "already_reacted"
    assert await add(":eyes:") == "invalid_name"
    assert await add("eyes", "1700000000.000100") == "message_not_found"
    gone = client.reactions_remove(channel="C0GENERAL", timestamp=ts, name="x")
    assert await refused(gone) == "no_reaction"
    await client.reactions_remove(channel="C0GENERAL", timestamp=ts, name="eyes")
    await ana.unreact("general", ts, "eyes")
    message = slack.workspace.message("general", ts)
    assert message is not None
    assert [reaction.name for reaction in message.reactions] == ["x"]
    assert message.reacted("x", by=slack.person("ana").id)


async def test_metadata_comes_back_only_when_asked_for(slack: LocalSlack, client: AsyncWebClient) -> None:
    metadata = {"event_type": "run", "event_payload": {"part": 1}}
    ts = (await client.chat_postMessage(channel="C0GENERAL", text="a", metadata=metadata))["ts"]
    plain = await client.conversations_replies(channel="C0GENERAL", ts=ts)
    full = await client.conversations_replies(channel="C0GENERAL", ts=ts, include_all_metadata=True)
    assert "metadata" not in plain["messages"][0]
    assert full["messages"][0]["metadata"] == metadata


async def test_an_ephemeral_message_is_kept_apart(slack: LocalSlack, client: AsyncWebClient) -> None:
    await client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", text="psst")
    assert [message.text for message in slack.workspace.whispers("general")] == ["psst"]
    assert (await client.conversations_history(channel="C0GENERAL"))["messages"] == []
    stranger = client.chat_postEphemeral(channel="C0GENERAL", user="U0NOBODY", text="psst")
    assert await refused(stranger) == "user_not_in_channel"


async def test_at_name_becomes_a_mention_as_in_the_composer(slack: LocalSlack) -> None:
    ana = slack.as_person("ana")
    await ana.say("general", "@alpha. ask @ben, not mail@ben.org or @stranger <@U0ALPHA>")
    assert slack.workspace.messages("general")[0].text == (
        "<@U0ALPHA>. ask <@U0BEN>, not mail@ben.org or @stranger <@U0ALPHA>"
    )
