"""Faults that a test orders: of Web API calls, of deliveries, and of connections."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from slack_errors import error_of
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import (
    BlockUntil,
    Delayed,
    DropAfterCall,
    DropBeforeCall,
    Dropped,
    Duplicated,
    ErrorResponse,
    HeldUntil,
    RateLimited,
    RetrySchedule,
    ServerError,
    SlowResponse,
)

QUICK = pytest.mark.slack(retries=RetrySchedule(ack_timeout_s=0.15, delays_s=(0.0, 0.05, 0.05)))


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


async def texts(socket, count):
    return [(await socket.acked_event())["text"] for _ in range(count)]


async def test_duplicated_sends_an_event_over_two_connections(slack, ana, sockets):
    one, two = await sockets.open(), await sockets.open()
    slack.deliveries.next(Duplicated())
    await ana.say("general", "twice")
    frames = [await one.frame(), await two.frame()]
    assert frames[0] == frames[1]
    assert frames[0]["retry_attempt"] == 0
    await one.ack(frames[0])
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
    assert slack.deliveries.coming == ()


async def test_delayed_moves_an_event_behind_later_ones(slack, ana, socket):
    slack.deliveries.next(Delayed(behind=2))
    for text in ("one", "two", "three", "four"):
        await ana.say("general", text)
    assert await texts(socket, 4) == ["two", "three", "one", "four"]
    slack.deliveries.next(Delayed(behind=1), times=2)
    for text in ("one", "two", "three"):
        await ana.say("general", text)
    assert sorted(await texts(socket, 3)) == ["one", "three", "two"]


async def test_a_held_event_is_delivered_when_the_test_says_so(slack, ana, socket):
    slack.deliveries.next(HeldUntil(until := asyncio.Event()))
    for text in ("one", "two", "three"):
        await ana.say("general", text)
    assert await texts(socket, 2) == ["two", "three"]
    until.set()
    assert await texts(socket, 1) == ["one"]


async def test_cleared_faults_have_no_effect(slack, ana, socket):
    slack.deliveries.next(Dropped(), times=5)
    slack.deliveries.clear()
    await ana.say("general", "here")
    assert await texts(socket, 1) == ["here"]


@QUICK
async def test_a_delayed_event_without_a_later_one_is_delivered(slack, ana, socket):
    slack.deliveries.next(Delayed(behind=5))
    await ana.say("general", "alone")
    assert slack.socket_mode.delivery.outstanding == 1
    assert await texts(socket, 1) == ["alone"]


@QUICK
async def test_a_delayed_event_is_delivered_over_the_next_connection(slack, ana, sockets):
    await sockets.open()
    slack.deliveries.next(Delayed())
    await ana.say("general", "kept")
    slack.socket_mode.drop()
    assert await texts(await sockets.open(), 1) == ["kept"]


@QUICK
async def test_dropped_delivers_an_event_as_a_retry(slack, ana, socket):
    slack.deliveries.next(Dropped())
    await ana.say("general", "lost")
    await ana.say("general", "next")
    assert await texts(socket, 1) == ["next"]
    frame = await socket.frame()
    assert frame["payload"]["event"]["text"] == "lost"
    assert (frame["retry_attempt"], frame["retry_reason"]) == (1, "timeout")


@QUICK
async def test_a_frozen_connection_stays_open_and_sends_nothing(slack, ana, sockets):
    frozen = await sockets.open()
    slack.socket_mode.freeze()
    await ana.say("general", "not received")
    await frozen.socket.send_json({"type": "ping"})
    await frozen.socket.ping()
    with pytest.raises(TimeoutError):
        await frozen.frame(timeout_s=0.03)
    assert slack.socket_mode.connections == 1
    assert slack.workspace.bot_online
    other = await sockets.open()
    frame = await other.frame()
    assert (frame["payload"]["event"]["text"], frame["retry_attempt"] > 0) == ("not received", True)
    await other.ack(frame)
    await frozen.socket.close()
    assert frozen.socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE
    await slack.until(lambda _: slack.socket_mode.connections == 1)
    assert not slack.socket_mode.frozen


@pytest.mark.parametrize("action", ["drop", "close"])
async def test_a_frozen_connection_can_be_ended(slack, socket, action):
    slack.socket_mode.freeze()
    getattr(slack.socket_mode, action)()
    assert (await socket.socket.receive(timeout=5)).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}


async def test_no_connection_opens_while_the_link_is_disabled(slack, ana, sockets, client):
    socket, unused = await sockets.open(), await sockets.url()
    slack.socket_mode.disconnect("link_disabled")
    debug_info = {"host": "applink-local"}
    assert await socket.frame() == {"type": "disconnect", "reason": "link_disabled", "debug_info": debug_info}
    assert (await socket.socket.receive()).type == aiohttp.WSMsgType.CLOSE
    assert await error_of(client.apps_connections_open(app_token=slack.app_token)) == "access_denied"
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await sockets.session.ws_connect(unused)
    ts = await ana.say("general", "later")
    slack.socket_mode.enable()
    assert (await (await sockets.open()).acked_event())["ts"] == ts
