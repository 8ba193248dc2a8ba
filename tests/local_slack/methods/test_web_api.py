"""Slack's errors, met by the situations they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import ErrorResponse, LocalSlack, SlowResponse
from local_slack.methods.known_errors import KNOWN_ERRORS
from local_slack.methods.web_api import METHOD_NAMES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    import aiohttp


# fmt: off
_ARGUMENTS = (
    "channel", "ts", "text", "blocks", "attachments", "metadata", "thread_ts", "user", "users", "name", "timestamp",
    "limit", "cursor", "oldest", "latest", "types", "filename", "length", "files", "channel_id", "initial_comment",
    "file", "status", "title", "prompts", "loading_messages", "user_id", "view", "trigger_id", "view_id", "hash",
    "chunks", "markdown_text", "recipient_user_id", "recipient_team_id", "session_status", "username",
    "reply_broadcast", "message_ts", "bot", "inclusive", "parse", "error",
)
# fmt: on


async def refused(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


@pytest.mark.parametrize("error", KNOWN_ERRORS)
async def test_any_error_can_be_ordered(slack: LocalSlack, client: AsyncWebClient, error: str) -> None:
    slack.faults.next("chat.postMessage", ErrorResponse(error))
    assert await refused(client.chat_postMessage(channel="C0GENERAL", text="no")) == error
    assert slack.workspace.messages("general") == ()


async def test_an_archived_channel_takes_nothing_and_can_still_be_read(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    ts = (await client.chat_postMessage(channel="C0GENERAL", text="hi"))["ts"]
    await client.conversations_archive(channel="C0GENERAL")
    here: dict[str, Any] = {"channel": "C0GENERAL"}
    assert await refused(client.chat_postMessage(**here, text="x")) == "is_archived"
    assert await refused(client.chat_postEphemeral(**here, user="U0ANA", text="x")) == "is_archived"
    assert await refused(client.chat_update(**here, ts=ts, text="x")) == "is_archived"
    assert await refused(client.reactions_add(**here, timestamp=ts, name="x")) == "is_archived"
    assert await refused(client.conversations_join(**here)) == "is_archived"
    assert await refused(client.conversations_archive(**here)) == "already_archived"
    assert len((await client.conversations_history(**here))["messages"]) == 1
    assert (await client.conversations_info(**here))["channel"]["is_archived"] is True
    slack.workspace.archive("general", archived=False)
    await client.chat_postMessage(**here, text="x")


async def test_a_locked_thread_takes_no_replies_and_no_reactions(slack: LocalSlack, client: AsyncWebClient) -> None:
    ana = slack.as_person("ana")
    root, other = await ana.say("general", "root"), await ana.say("general", "other")
    slack.workspace.rules.lock("C0GENERAL", root)
    here: dict[str, Any] = {"channel": "C0GENERAL"}
    assert await refused(client.chat_postMessage(**here, thread_ts=root, text="x")) == "thread_locked"
    assert await refused(client.reactions_add(**here, timestamp=root, name="x")) == "thread_locked"
    await client.chat_postMessage(**here, thread_ts=other, text="x")
    slack.workspace.rules.unlock("C0GENERAL", root)
    await client.chat_postMessage(**here, thread_ts=root, text="x")


async def test_without_a_messages_tab_the_bot_can_not_write_to_people(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    slack.workspace.rules.messages_tab = False
    assert await refused(client.chat_postMessage(channel="U0ANA", text="x")) == "messages_tab_disabled"
    await client.chat_postMessage(channel="C0GENERAL", text="x")


async def test_a_channel_can_be_restricted_to_people(slack: LocalSlack, client: AsyncWebClient) -> None:
    slack.workspace.rules.restricted.add("C0GENERAL")
    assert await refused(client.chat_postMessage(channel="C0GENERAL", text="x")) == "restricted_action"
    await slack.as_person("ana").say("general", "x")


async def test_the_edit_window_closes() -> None:
    now = [1_700_000_000.0]
    async with LocalSlack(clock=lambda: now[0]) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        slack.workspace.rules.edit_window_s = 60
        ts = (await client.chat_postMessage(channel="C0GENERAL", text="a"))["ts"]
        now[0] += 60
        await client.chat_update(channel="C0GENERAL", ts=ts, text="b")
        now[0] += 1
        late = client.chat_update(channel="C0GENERAL", ts=ts, text="c")
        assert await refused(late) == "edit_window_closed"


@pytest.mark.parametrize("error", ["token_revoked", "account_inactive", "token_expired"])
async def test_a_token_can_be_refused_from_now_on(slack: LocalSlack, client: AsyncWebClient, error: str) -> None:
    await client.auth_test()
    slack.workspace.rules.refused_tokens[slack.bot_token] = error
    assert await refused(client.auth_test()) == error
    assert await refused(client.chat_postMessage(channel="C0GENERAL", text="x")) == error
    del slack.workspace.rules.refused_tokens[slack.bot_token]
    await client.auth_test()


async def test_a_message_carries_fifty_emoji_and_a_person_gives_twenty_three() -> None:
    async with LocalSlack(limits=None) as slack:
        client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        ts = await slack.as_person("ana").say("general", "hi")
        for number in range(23):
            await client.reactions_add(channel="C0GENERAL", timestamp=ts, name=f"e{number}")
        one_more = client.reactions_add(channel="C0GENERAL", timestamp=ts, name="e99")
        assert await refused(one_more) == "too_many_reactions"


async def test_a_slow_answer_comes_after_its_effect(slack: LocalSlack, client: AsyncWebClient) -> None:
    slack.faults.next("chat.postMessage", SlowResponse(0.01))
    answer = await client.chat_postMessage(channel="C0GENERAL", text="at once")
    assert slack.workspace.message("general", answer["ts"]) is not None


async def test_apps_name_a_channel_by_its_id_once_there_is_a_message(slack: LocalSlack, client: AsyncWebClient) -> None:
    answer = await client.chat_postMessage(channel="#general", text="hi")
    assert answer["channel"] == "C0GENERAL"
    by_name = client.chat_update(channel="#general", ts=answer["ts"], text="x")
    assert await refused(by_name) == "channel_not_found"


@pytest.fixture
async def unlimited() -> AsyncIterator[LocalSlack]:
    async with LocalSlack(limits=None) as workspace:
        yield workspace


async def test_arguments_of_the_wrong_kind_are_named(unlimited: LocalSlack, session: aiohttp.ClientSession) -> None:
    slack = unlimited

    async def call(method: str, **arguments: Any) -> tuple[str, list[str]]:
        headers = {"Authorization": f"Bearer {slack.bot_token}"}
        async with session.post(slack.api_url + method, headers=headers, json=arguments) as response:
            answer = await response.json()
            return answer["error"], answer.get("response_metadata", {}).get("messages", [])

    here = {"channel": "C0GENERAL"}
    assert await call("chat.postMessage", **here, text={"a": 1}) == (
        "invalid_arguments",
        ["[ERROR] must provide a string [json-pointer:/text]"],
    )
    assert await call("chat.postMessage", **here, text="x", reply_broadcast=[]) == (
        "invalid_arguments",
        ["[ERROR] must provide a boolean [json-pointer:/reply_broadcast]"],
    )
    assert await call("chat.postMessage", **here, text="x", parse="some") == (
        "invalid_arguments",
        ["[ERROR] must be a valid enum value [json-pointer:/parse]"],
    )
    assert await call("chat.postMessage", **here, blocks="nonsense") == ("invalid_blocks_format", [])
    assert await call("chat.postMessage", **here) == ("no_text", [])
    assert await call("chat.postMessage", **here, text="x", thread_ts="soon") == ("invalid_thread_ts", [])
    assert await call("chat.postMessage", **here, text="x", markdown_text="x") == ("markdown_text_conflict", [])
    assert await call("chat.postMessage", **here, text="x", attachments=[{}] * 101) == ("too_many_attachments", [])
    assert await call("chat.postMessage", **here, text="x", metadata={"event_type": 1}) == (
        "invalid_metadata_format",
        [],
    )
    assert await call("conversations.history", **here, limit="many") == ("invalid_limit", [])
    assert await call("conversations.history", **here, cursor="%") == ("invalid_cursor", [])
    assert await call("files.getUploadURLExternal", filename="a.txt", length="long") == (
        "invalid_arguments",
        ["[ERROR] must provide an integer [json-pointer:/length]"],
    )


@pytest.mark.parametrize(
    "odd", [None, True, -1, 10**30, "", "\ud800\x00", "[{", [], [None], [[]], {}, {"type": ["x"]}], ids=repr
)
async def test_no_arguments_break_a_method(unlimited: LocalSlack, session: aiohttp.ClientSession, odd: object) -> None:
    root = await unlimited.as_person("ana").say("general", "hi")
    right = {"channel": "C0GENERAL", "channel_id": "C0GENERAL", "ts": root, "thread_ts": root, "timestamp": root}
    wrong = dict.fromkeys(_ARGUMENTS, odd)
    headers = {"Authorization": f"Bearer {unlimited.bot_token}"}
    for method in METHOD_NAMES:
        for arguments in (wrong, wrong | right):
            url = unlimited.api_url + method
            async with session.post(url, headers=headers, json=arguments) as response:
                assert response.status == 200, f"{method} {await response.text()}"


async def test_metadata_has_a_size(client: AsyncWebClient) -> None:
    def post(size: int) -> Awaitable[Any]:
        metadata = {"event_type": "run", "event_payload": {"text": "x" * size}}
        return client.chat_postMessage(channel="C0GENERAL", text="hi", metadata=metadata)

    await post(10_000)
    assert await refused(post(20_000)) == "metadata_too_large"


async def test_a_token_counts_in_its_header_or_a_form_only(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    async def error(**options: Any) -> str | None:
        async with session.post(slack.api_url + "auth.test", **options) as response:
            return (await response.json()).get("error")

    token = {"token": slack.bot_token}
    assert await error(data=token) is None
    assert await error(params=token) == "not_authed"
    assert await error(json=token) == "not_authed"
