"""Deliveries that go wrong because a test says so, and connections that die in all ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError

from local_slack import Delayed, Dropped, Duplicated, LocalSlack, RetrySchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from slack_sdk.web.async_client import AsyncWebClient

QUICK = RetrySchedule(ack_timeout_s=0.15, delays_s=(0.0, 0.05, 0.05))


async def texts(socket: Any, count: int) -> list[str]:
    return [(await socket.acked_event())["text"] for _ in range(count)]


async def test_an_event_comes_twice_over_two_connections(slack: LocalSlack, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    one, two = await sockets.open(), await sockets.open()
    slack.deliveries.next(Duplicated())
    await slack.as_person("ana").say("general", "twice")
    frames = [await one.frame(), await two.frame()]
    assert frames[0] == frames[1]
    assert frames[0]["retry_attempt"] == 0
    await one.ack(frames[0])
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
    assert slack.deliveries.coming == ()


async def test_a_late_event_is_overtaken_by_as_many_as_it_is_behind(slack: LocalSlack, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    slack.deliveries.next(Delayed(behind=2))
    for text in ("one", "two", "three", "four"):
        await ana.say("general", text)
    assert await texts(socket, 4) == ["two", "three", "one", "four"]


async def test_two_late_events_keep_their_places(slack: LocalSlack, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    slack.deliveries.next(Delayed(behind=1), times=2)
    for text in ("one", "two", "three"):
        await ana.say("general", text)
    assert sorted(await texts(socket, 3)) == ["one", "three", "two"]


async def test_a_late_event_that_nothing_overtakes_comes_all_the_same(raw_sockets: Any) -> None:
    async with LocalSlack(retries=QUICK) as slack:
        socket = await raw_sockets(slack).open()
        slack.deliveries.next(Delayed(behind=5))
        await slack.as_person("ana").say("general", "alone")
        assert slack.socket_mode.delivery.outstanding == 1
        assert await texts(socket, 1) == ["alone"]


async def test_a_late_event_survives_the_loss_of_the_connection(raw_sockets: Any) -> None:
    async with LocalSlack(retries=QUICK) as slack:
        sockets = raw_sockets(slack)
        await sockets.open()
        slack.deliveries.next(Delayed())
        await slack.as_person("ana").say("general", "kept")
        slack.socket_mode.drop()
        assert await texts(await sockets.open(), 1) == ["kept"]


async def test_a_lost_event_comes_as_a_retry(raw_sockets: Any) -> None:
    async with LocalSlack(retries=QUICK) as slack:
        socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
        slack.deliveries.next(Dropped())
        await ana.say("general", "lost")
        await ana.say("general", "next")
        assert await texts(socket, 1) == ["next"]
        frame = await socket.frame()
        assert (frame["payload"]["event"]["text"], frame["retry_attempt"], frame["retry_reason"]) == (
            "lost",
            1,
            "timeout",
        )


async def test_what_is_cleared_happens_no_more(slack: LocalSlack, raw_sockets: Any) -> None:
    socket = await raw_sockets(slack).open()
    slack.deliveries.next(Dropped(), times=5)
    slack.deliveries.clear()
    await slack.as_person("ana").say("general", "here")
    assert await texts(socket, 1) == ["here"]


async def test_a_frozen_connection_stays_open_and_says_nothing(raw_sockets: Any) -> None:
    async with LocalSlack(retries=QUICK) as slack:
        sockets = raw_sockets(slack)
        silent, ana = await sockets.open(), slack.as_person("ana")
        slack.socket_mode.freeze()
        await ana.say("general", "into the void")
        await silent.socket.send_json({"type": "ping"})
        await silent.socket.ping()
        with pytest.raises(TimeoutError):
            await silent.frame(timeout_s=0.03)
        assert slack.socket_mode.connections == 1
        assert slack.workspace.bot_online
        awake = await sockets.open()
        frame = await awake.frame()
        assert (frame["payload"]["event"]["text"], frame["retry_attempt"] > 0) == ("into the void", True)
        await awake.ack(frame)
        await silent.socket.close()
        assert silent.socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE
        await slack.until(lambda _: slack.socket_mode.connections == 1)
        assert not slack.socket_mode.frozen


@pytest.mark.parametrize("how", ["drop", "close"])
async def test_a_frozen_connection_can_be_ended_from_outside(raw_sockets: Any, how: str) -> None:
    async with LocalSlack() as slack:
        silent = await raw_sockets(slack).open()
        slack.socket_mode.freeze()
        getattr(slack.socket_mode, how)()
        assert (await silent.socket.receive(timeout=5)).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}


async def test_bolt_leaves_a_silent_connection(connect: Callable[..., Any], slack: LocalSlack) -> None:
    bot = await connect(slack, ping_interval_s=0.05)
    slack.socket_mode.freeze()
    await slack.until(lambda _: slack.socket_mode.opened == 2)
    ts = await slack.as_person("ana").say("general", "still there?")
    await bot.event(lambda e: e.get("ts") == ts)


async def test_while_the_link_is_disabled_no_connection_opens(
    slack: LocalSlack, raw_sockets: Any, client: AsyncWebClient
) -> None:
    sockets = raw_sockets(slack)
    socket, unused = await sockets.open(), await sockets.url()
    slack.socket_mode.disconnect("link_disabled")
    assert await socket.frame() == {
        "type": "disconnect",
        "reason": "link_disabled",
        "debug_info": {"host": "applink-local"},
    }
    assert (await socket.socket.receive()).type == aiohttp.WSMsgType.CLOSE
    with pytest.raises(SlackApiError, match="access_denied"):
        await client.apps_connections_open(app_token=slack.app_token)
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await sockets.session.ws_connect(unused)
    ts = await slack.as_person("ana").say("general", "later")
    slack.socket_mode.enable()
    assert (await (await sockets.open()).acked_event())["ts"] == ts


async def test_the_hello_says_where_and_for_how_long(slack: LocalSlack, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    socket = await sockets.session.ws_connect(await sockets.url())
    hello = await socket.receive_json()
    assert hello["debug_info"] == {"host": "applink-local", "build_number": 1, "approximate_connection_time": 18060}


async def test_a_connection_answers_pings_and_a_close(slack: LocalSlack, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    socket = await sockets.session.ws_connect(await sockets.url(), autoping=False)
    assert (await socket.receive_json())["type"] == "hello"
    await socket.ping(b"there?")
    pong = await socket.receive(timeout=5)
    assert (pong.type, pong.data) == (aiohttp.WSMsgType.PONG, b"there?")
    await socket.close()
    assert socket.close_code == aiohttp.WSCloseCode.OK
    await slack.until(lambda _: slack.socket_mode.connections == 0)
