"""Faults of Web API calls that a test orders."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from slack_errors import error_of
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import BlockUntil, DropAfterCall, DropBeforeCall, ErrorResponse, RateLimited, ServerError, SlowResponse
from local_slack.web.control import KNOWN_ERRORS


@pytest.fixture
def post(client):
    return lambda text="no": client.chat_postMessage(channel="C0GENERAL", text=text)


@pytest.fixture
def posted(slack):
    return lambda: [message.text for message in slack.workspace.messages("general")]


async def test_the_next_calls_of_the_bot_meet_the_faults_in_order(slack, ana, post, posted):
    slack.faults.next("chat.postMessage", ErrorResponse("fatal_error"), times=2)
    slack.faults.next("chat.postMessage", RateLimited(retry_after_s=7))
    slack.faults.next("chat.postMessage", ServerError(503))
    await ana.say("general", "by a person")
    assert [await error_of(post()) for _ in range(2)] == ["fatal_error"] * 2
    with pytest.raises(SlackApiError) as limited:
        await post()
    response = limited.value.response
    assert (response.status_code, response["error"], response.headers["Retry-After"]) == (429, "ratelimited", "7")
    with pytest.raises(SlackApiError) as broken:
        await post()
    assert broken.value.response.status_code == 503
    assert slack.faults.pending("chat.postMessage") == 0
    await post("yes")
    assert posted() == ["by a person", "yes"]


@pytest.mark.parametrize("error", KNOWN_ERRORS)
async def test_any_error_can_be_ordered(slack, post, posted, error):
    slack.faults.next("chat.postMessage", ErrorResponse(error))
    assert await error_of(post()) == error
    assert posted() == []


async def test_a_waiting_call_takes_effect_when_it_is_released(slack, ana, post, posted):
    gate = asyncio.Event()
    slack.faults.next("chat.postMessage", BlockUntil(gate))
    posting = asyncio.create_task(post("late"))
    await ana.say("general", "first")
    assert not posting.done()
    gate.set()
    await posting
    assert posted() == ["first", "late"]


async def test_a_slow_answer_follows_its_effect(slack, post, posted):
    slack.faults.next("chat.postMessage", SlowResponse(0.01))
    await post("at once")
    assert posted() == ["at once"]


async def test_a_connection_drops_before_or_after_the_effect(slack, post, posted):
    slack.faults.next("chat.postMessage", DropAfterCall())
    slack.faults.next("chat.postMessage", DropBeforeCall())
    for text in ("done", "not done"):
        with pytest.raises(aiohttp.ClientConnectionError):
            await post(text)
    assert posted() == ["done"]


async def test_the_default_client_of_the_sdk_posts_again_after_a_dropped_connection(slack, posted):
    client = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
    slack.faults.next("chat.postMessage", DropAfterCall())
    await client.chat_postMessage(channel="C0GENERAL", text="twice")
    assert posted() == ["twice", "twice"]


async def test_the_url_of_a_socket_can_be_refused(slack, client):
    slack.faults.next("apps.connections.open", ErrorResponse("internal_error"))
    assert await error_of(client.apps_connections_open(app_token=slack.app_token)) == "internal_error"
    assert (await client.apps_connections_open(app_token=slack.app_token))["url"].startswith("ws://127.0.0.1:")
