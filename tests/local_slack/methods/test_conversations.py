"""Channels, direct messages, history, members and who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack, SlackRefused

if TYPE_CHECKING:
    import aiohttp


async def post(session: aiohttp.ClientSession, url: str, **options: object) -> dict[str, object]:
    async with session.post(url, **options) as response:  # type: ignore[arg-type]
        assert response.status == 200
        answer: dict[str, object] = await response.json()
        return answer


async def test_history_is_newest_first_without_replies_in_pages(slack: LocalSlack, client: AsyncWebClient) -> None:
    ana = slack.as_person("ana")
    stamps = [await ana.say("general", str(number)) for number in range(5)]
    await ana.say("general", "reply", thread=stamps[0])
    shown = await ana.say("general", "also in the channel", thread=stamps[0], broadcast=True)
    texts, pages, cursor = [], 0, None
    while cursor != "":
        page = await client.conversations_history(channel="C0GENERAL", limit=4, cursor=cursor)
        texts += [message["text"] for message in page["messages"]]
        cursor = page["response_metadata"]["next_cursor"]
        assert page["has_more"] is bool(cursor)
        pages += 1
    assert texts == ["also in the channel", "4", "3", "2", "1", "0"]
    assert pages == 2
    newest = (await client.conversations_history(channel="C0GENERAL", limit=1))["messages"][0]
    assert (newest["ts"], newest["subtype"]) == (shown, "thread_broadcast")


async def test_history_can_be_cut_by_time(slack: LocalSlack, client: AsyncWebClient) -> None:
    ana = slack.as_person("ana")
    one, two, three = [await ana.say("general", text) for text in ("1", "2", "3")]

    async def texts(**bounds: object) -> list[str]:
        answer = await client.conversations_history(channel="C0GENERAL", **bounds)  # type: ignore[arg-type]
        return [message["text"] for message in answer["messages"]]

    assert await texts(oldest=one) == ["3", "2"]
    assert await texts(oldest=one, latest=three) == ["2"]
    assert await texts(oldest=two, latest=two, inclusive=True) == ["2"]


async def test_replies_give_the_root_and_its_replies_oldest_first(slack: LocalSlack, client: AsyncWebClient) -> None:
    ana = slack.as_person("ana")
    root = await ana.say("general", "root")
    first = await ana.say("general", "first", thread=root)
    await ana.say("general", "second", thread=root)
    thread = (await client.conversations_replies(channel="C0GENERAL", ts=root))["messages"]
    assert [message["text"] for message in thread] == ["root", "first", "second"]
    assert (thread[0]["reply_count"], thread[1]["parent_user_id"]) == (2, "U0ANA")
    since = (await client.conversations_replies(channel="C0GENERAL", ts=root, oldest=first))["messages"]
    assert [message["text"] for message in since] == ["root", "second"]
    with pytest.raises(SlackApiError, match="thread_not_found"):
        await client.conversations_replies(channel="C0GENERAL", ts="1700000000.000100")


async def test_a_direct_message_is_opened_once_and_closed_to_others(slack: LocalSlack, client: AsyncWebClient) -> None:
    ana, ben = slack.as_person("ana"), slack.as_person("ben")
    channel = await ana.open_dm("alpha")
    assert channel == "D0ANA"
    assert (await client.conversations_open(users="U0ANA"))["channel"]["id"] == channel
    ts = await ana.dm("alpha", "hello")
    info = await client.conversations_info(channel=channel)
    assert (info["channel"]["is_im"], info["channel"]["user"]) == (True, "U0ANA")
    for call in (ben.say(channel, "me too"), ben.call("conversations.history", channel=channel)):
        with pytest.raises(SlackRefused, match="channel_not_found"):
            await call
    with pytest.raises(SlackRefused, match="channel_not_found"):
        await ben.call("reactions.get", channel=channel, timestamp=ts)


async def test_a_post_to_a_user_goes_to_their_direct_message(client: AsyncWebClient) -> None:
    assert (await client.chat_postMessage(channel="U0BEN", text="hello"))["channel"] == "D0BEN"


async def test_a_bot_outside_a_channel_can_not_write_until_it_joins() -> None:
    async with LocalSlack(channels=("general", "secret"), bot_channels=("general",)) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        secret = slack.channel("secret").id
        with pytest.raises(SlackApiError, match="not_in_channel"):
            await client.chat_postMessage(channel=secret, text="hi")
        with pytest.raises(SlackApiError, match="not_in_channel"):
            await client.conversations_history(channel=secret)
        await client.conversations_join(channel=secret)
        await client.chat_postMessage(channel=secret, text="hi")
        assert slack.bot_user_id in (await client.conversations_members(channel=secret))["members"]


@pytest.mark.parametrize("name", ["-", "_a", "A", "a b", "x" * 81, ""])
async def test_a_channel_has_a_plain_name(client: AsyncWebClient, name: str) -> None:
    with pytest.raises(SlackApiError, match="invalid_name"):
        await client.conversations_create(name=name)


async def test_channels_are_listed_by_kind(slack: LocalSlack, client: AsyncWebClient) -> None:
    await slack.as_person("ana").open_dm("alpha")
    await slack.as_person("ana").open_dm("ben")
    public = (await client.conversations_list())["channels"]
    assert [channel["name"] for channel in public] == ["general", "random"]
    direct = (await client.users_conversations(types="im"))["channels"]
    assert [channel["id"] for channel in direct] == ["D0ANA"]


async def test_members_can_be_looked_up(slack: LocalSlack, client: AsyncWebClient) -> None:
    names = [member["name"] for member in (await client.users_list())["members"]]
    assert names == ["ana", "ben", "chloe", "alpha"]
    assert (await client.users_info(user="U0ANA"))["user"]["profile"]["display_name"] == "Ana"
    assert (await client.bots_info(bot="B0ALPHA"))["bot"]["user_id"] == slack.bot_user_id
    with pytest.raises(SlackApiError, match="user_not_found"):
        await client.users_info(user="U0NOBODY")


async def test_each_token_says_who_it_is(slack: LocalSlack, client: AsyncWebClient) -> None:
    me = await client.auth_test()
    assert (me["user_id"], me["bot_id"], me["team_id"]) == ("U0ALPHA", "B0ALPHA", "T0LOCAL")
    assert "chat:write" in me.headers["x-oauth-scopes"]
    ana = await slack.as_person("ana").call("auth.test")
    assert ana["user_id"] == "U0ANA"
    assert "bot_id" not in ana


@pytest.mark.parametrize(
    ("method", "token", "error"),
    [
        ("auth.test", "", "not_authed"),
        ("auth.test", "xoxb-wrong", "invalid_auth"),
        ("chat.postMessage", "xapp-1-A0ALPHA-local-alpha", "not_allowed_token_type"),
        ("apps.connections.open", "xoxb-local-alpha", "not_allowed_token_type"),
        ("apps.connections.open", "xapp-wrong", "invalid_auth"),
        ("chat.unheardOf", "xoxb-local-alpha", "unknown_method"),
    ],
)
async def test_a_wrong_token_or_method_is_refused_with_status_200(
    slack: LocalSlack, session: aiohttp.ClientSession, method: str, token: str, error: str
) -> None:
    answer = await post(session, slack.api_url + method, headers={"Authorization": f"Bearer {token}"})
    assert (answer["ok"], answer["error"]) == (False, error)


async def test_arguments_come_as_form_as_json_or_in_the_query(
    slack: LocalSlack, session: aiohttp.ClientSession
) -> None:
    url, arguments = slack.api_url + "chat.postMessage", {"channel": "C0GENERAL", "text": "hi"}
    headers = {"Authorization": f"Bearer {slack.bot_token}"}
    for options in (
        {"data": arguments, "headers": headers},
        {"json": arguments, "headers": headers},
        {"params": arguments, "headers": headers},
        {"data": {**arguments, "token": slack.bot_token}},
    ):
        assert (await post(session, url, **options))["ok"] is True
    assert len(slack.workspace.messages("general")) == 4


async def test_an_absent_argument_is_named_and_an_empty_one_is_looked_up(
    slack: LocalSlack, session: aiohttp.ClientSession
) -> None:
    url, headers = slack.api_url + "conversations.replies", {"Authorization": f"Bearer {slack.bot_token}"}
    absent = await post(session, url, headers=headers)
    assert absent["error"] == "invalid_arguments"
    assert absent["response_metadata"] == {
        "messages": ["[ERROR] missing required field: channel", "[ERROR] missing required field: ts"]
    }
    empty = await post(session, url, headers=headers, data={"channel": "", "ts": ""})
    assert empty["error"] == "channel_not_found"
    broken = await post(session, url, headers={**headers, "Content-Type": "application/json"}, data="{")
    assert broken["error"] == "invalid_json"
