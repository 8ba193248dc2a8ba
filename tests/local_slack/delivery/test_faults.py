"""Faults that a test orders."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import BlockUntil, DropAfterCall, DropBeforeCall, ErrorResponse, LocalSlack, RateLimited, ServerError


async def test_the_next_calls_meet_the_faults_in_order_and_people_do_not(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    slack.faults.next("chat.postMessage", ErrorResponse("fatal_error"), times=2)
    slack.faults.next("chat.postMessage", RateLimited(retry_after_s=7))
    slack.faults.next("chat.postMessage", ServerError(503))
    await slack.as_person("ana").say("general", "people are spared")
    for _ in range(2):
        with pytest.raises(SlackApiError, match="fatal_error"):
            await client.chat_postMessage(channel="C0GENERAL", text="no")
    with pytest.raises(SlackApiError) as limited:
        await client.chat_postMessage(channel="C0GENERAL", text="no")
    assert limited.value.response.status_code == 429
    assert limited.value.response.headers["Retry-After"] == "7"
    assert limited.value.response["error"] == "ratelimited"
    with pytest.raises(SlackApiError) as broken:
        await client.chat_postMessage(channel="C0GENERAL", text="no")
    assert broken.value.response.status_code == 503
    assert slack.faults.pending("chat.postMessage") == 0
    await client.chat_postMessage(channel="C0GENERAL", text="yes")
    assert [m.text for m in slack.workspace.messages("general")] == ["people are spared", "yes"]


async def test_a_call_that_waits_takes_effect_when_it_is_let_go(slack: LocalSlack, client: AsyncWebClient) -> None:
    gate = asyncio.Event()
    slack.faults.next("chat.postMessage", BlockUntil(gate))
    post = asyncio.create_task(client.chat_postMessage(channel="C0GENERAL", text="late"))
    await slack.as_person("ana").say("general", "first")
    assert not post.done()
    gate.set()
    await post
    assert [m.text for m in slack.workspace.messages("general")] == ["first", "late"]


async def test_a_dropped_connection_leaves_open_whether_the_call_took_effect(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    slack.faults.next("chat.postMessage", DropAfterCall())
    slack.faults.next("chat.postMessage", DropBeforeCall())
    for text in ("done", "not done"):
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.chat_postMessage(channel="C0GENERAL", text=text)
    assert [m.text for m in slack.workspace.messages("general")] == ["done"]


async def test_the_default_client_of_the_sdk_posts_twice_after_a_dropped_connection(slack: LocalSlack) -> None:
    client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    slack.faults.next("chat.postMessage", DropAfterCall())
    await client.chat_postMessage(channel="C0GENERAL", text="twice")
    assert [m.text for m in slack.workspace.messages("general")] == ["twice", "twice"]


async def test_the_socket_url_can_be_refused_too(slack: LocalSlack, client: AsyncWebClient) -> None:
    slack.faults.next("apps.connections.open", ErrorResponse("internal_error"))
    with pytest.raises(SlackApiError, match="internal_error"):
        await client.apps_connections_open(app_token=slack.app_token)
    assert (await client.apps_connections_open(app_token=slack.app_token))["url"].startswith("ws://127.0.0.1:")
