"""Channels, direct messages, history and members."""

from __future__ import annotations

import pytest
from slack_errors import error_of


def texts_of(messages):
    return [message["text"] for message in messages]


async def test_history_is_newest_first_without_replies_in_pages(ana, client):
    stamps = [await ana.say("general", str(number)) for number in range(5)]
    await ana.say("general", "reply", thread=stamps[0])
    shown = await ana.say("general", "also in the channel", thread=stamps[0], broadcast=True)
    texts, pages, cursor = [], 0, None
    while cursor != "":
        page = await client.conversations_history(channel="C0GENERAL", limit=4, cursor=cursor)
        texts += texts_of(page["messages"])
        cursor = page["response_metadata"]["next_cursor"]
        assert page["has_more"] is bool(cursor)
        pages += 1
    assert (texts, pages) == (["also in the channel", "4", "3", "2", "1", "0"], 2)
    newest = (await client.conversations_history(channel="C0GENERAL", limit=1))["messages"][0]
    assert (newest["ts"], newest["subtype"]) == (shown, "thread_broadcast")


async def test_history_can_be_limited_by_time(ana, client):
    one, two, three = [await ana.say("general", text) for text in ("1", "2", "3")]

    async def texts(**bounds):
        return texts_of((await client.conversations_history(channel="C0GENERAL", **bounds))["messages"])

    assert await texts(oldest=one) == ["3", "2"]
    assert await texts(oldest=one, latest=three) == ["2"]
    assert await texts(oldest=two, latest=two, inclusive=True) == ["2"]


async def test_replies_are_the_root_and_its_replies_oldest_first(ana, client):
    root = await ana.say("general", "root")
    first = await ana.say("general", "first", thread=root)
    await ana.say("general", "second", thread=root)
    thread = (await client.conversations_replies(channel="C0GENERAL", ts=root))["messages"]
    assert texts_of(thread) == ["root", "first", "second"]
    assert (thread[0]["reply_count"], thread[1]["parent_user_id"]) == (2, "U0ANA")
    since = await client.conversations_replies(channel="C0GENERAL", ts=root, oldest=first)
    assert texts_of(since["messages"]) == ["root", "second"]
    missing = client.conversations_replies(channel="C0GENERAL", ts="1700000000.000100")
    assert await error_of(missing) == "thread_not_found"


async def test_a_direct_message_has_one_channel_that_is_closed_to_others(slack, ana, client):
    ben, channel = slack.as_person("ben"), await ana.open_dm("alpha")
    assert channel == "D0ANA"
    assert (await client.conversations_open(users="U0ANA"))["channel"]["id"] == channel
    ts = await ana.dm("alpha", "hello")
    info = (await client.conversations_info(channel=channel))["channel"]
    assert (info["is_im"], info["user"]) == (True, "U0ANA")
    for call in (
        ben.say(channel, "me too"),
        ben.call("conversations.history", channel=channel),
        ben.call("reactions.get", channel=channel, timestamp=ts),
    ):
        assert await error_of(call) == "channel_not_found"


@pytest.mark.slack(channels=("general", "secret"), bot_channels=("general",))
async def test_a_bot_can_use_a_channel_after_it_has_joined(slack, client):
    secret = slack.channel("secret").id
    assert await error_of(client.chat_postMessage(channel=secret, text="hi")) == "not_in_channel"
    assert await error_of(client.conversations_history(channel=secret)) == "not_in_channel"
    await client.conversations_join(channel=secret)
    await client.chat_postMessage(channel=secret, text="hi")
    assert slack.bot_user_id in (await client.conversations_members(channel=secret))["members"]


@pytest.mark.parametrize("name", ["-", "_a", "A", "a b", "x" * 81, ""])
async def test_a_wrong_name_of_a_channel_is_refused(client, name):
    assert (await error_of(client.conversations_create(name=name))).startswith("invalid_name")


async def test_channels_are_listed_by_type(ana, client):
    await ana.open_dm("alpha")
    await ana.open_dm("ben")
    public = (await client.conversations_list())["channels"]
    assert [channel["name"] for channel in public] == ["general", "random"]
    direct = (await client.users_conversations(types="im"))["channels"]
    assert [channel["id"] for channel in direct] == ["D0ANA"]


async def test_a_channel_has_a_topic_a_purpose_and_a_new_name(client):
    await client.conversations_setTopic(channel="C0RANDOM", topic="Cats")
    await client.conversations_setPurpose(channel="C0RANDOM", purpose="Pictures")
    await client.conversations_rename(channel="C0RANDOM", name="cats")
    channel = (await client.conversations_info(channel="C0RANDOM"))["channel"]
    assert (channel["name"], channel["topic"]["value"], channel["purpose"]["value"]) == ("cats", "Cats", "Pictures")
    assert channel["topic"]["creator"] == "U0ALPHA"
    assert await error_of(client.conversations_rename(channel="C0RANDOM", name="general")) == "name_taken"
    assert await error_of(client.conversations_setTopic(channel="C0RANDOM", topic="x" * 251)) == "too_long"


@pytest.mark.slack(events=("member_left_channel",))
async def test_a_member_can_be_removed_from_a_channel(slack, client, bot):
    await client.conversations_kick(channel="C0RANDOM", user="U0BEN")
    assert "U0BEN" not in slack.channel("random").members
    left = await bot.event(lambda event: event["type"] == "member_left_channel")
    assert (left["user"], left["channel"]) == ("U0BEN", "C0RANDOM")
    for channel, user, error in (
        ("C0RANDOM", "U0BEN", "not_in_channel"),
        ("C0RANDOM", "U0ALPHA", "cant_kick_self"),
        ("C0GENERAL", "U0ANA", "cant_kick_from_general"),
    ):
        assert await error_of(client.conversations_kick(channel=channel, user=user)) == error


async def test_each_member_has_a_read_cursor(ana, client):
    ts = await ana.say("general", "news")
    await client.conversations_mark(channel="C0GENERAL", ts=ts)
    assert (await client.conversations_info(channel="C0GENERAL"))["channel"]["last_read"] == ts
    assert "last_read" not in (await ana.call("conversations.info", channel="C0GENERAL"))["channel"]


async def test_people_are_found_by_their_address(client):
    user = (await client.users_lookupByEmail(email="Ana@local.example"))["user"]
    profile = (await client.users_profile_get(user="U0ANA"))["profile"]
    assert (user["id"], user["profile"]["email"], profile["email"]) == ("U0ANA", *["ana@local.example"] * 2)
    assert await error_of(client.users_lookupByEmail(email="x@local.example")) == "users_not_found"


@pytest.mark.slack(scopes={"users:read"})
async def test_an_app_without_the_scope_sees_no_addresses(client):
    assert "email" not in (await client.users_info(user="U0ANA"))["user"]["profile"]


async def test_an_app_reads_texts_as_rich_text_too(ana, client):
    ts = await ana.say("general", "see <https://example.org|this>, <@U0BEN> &amp; co")
    (message,) = (await client.conversations_replies(channel="C0GENERAL", ts=ts))["messages"]
    assert message["blocks"][0]["elements"][0]["elements"] == [
        {"type": "text", "text": "see "},
        {"type": "link", "url": "https://example.org", "text": "this"},
        {"type": "text", "text": ", "},
        {"type": "user", "user_id": "U0BEN"},
        {"type": "text", "text": " & co"},
    ]
    await client.chat_postMessage(channel="C0GENERAL", text="copied", blocks=message["blocks"])
