"""Events over Socket Mode: real Bolt where that suffices, bare frames where every frame counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from local_slack import LocalSlack, RetrySchedule

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
QUICK = RetrySchedule(ack_timeout_s=0.05, delays_s=(0.0, 0.05))


async def test_a_mention_comes_as_message_and_as_app_mention(slack: LocalSlack, bot: Any) -> None:
    ts = await slack.as_person("ana").say("general", "hello @alpha")
    mention = await bot.event(lambda e: e["type"] == "app_mention")
    message = await bot.event(lambda e: e["type"] == "message")
    for event in (mention, message):
        assert (event["channel"], event["ts"], event["user"]) == ("C0GENERAL", ts, "U0ANA")
        assert event["text"] == "hello <@U0ALPHA>"
    assert message["channel_type"] == "channel"


async def test_a_direct_message_is_no_mention(slack: LocalSlack, bot: Any) -> None:
    ana = slack.as_person("ana")
    await ana.dm("alpha", "hello <@U0ALPHA>")
    ts = await ana.dm("alpha", "anyone?")
    before = await bot.events_until(ts)
    assert [(e["type"], e["channel_type"]) for e in before] == [("message", "im")]


async def test_the_bots_own_posts_are_delivered_but_are_no_mention(slack: LocalSlack, bot: Any) -> None:
    await bot.client.chat_postMessage(channel="C0GENERAL", text="I am <@U0ALPHA>")
    last = await bot.client.chat_postMessage(channel="C0GENERAL", text="as", username="Ada")
    before = await bot.events_until(last["ts"])
    assert [(e["type"], e["bot_id"], e["user"]) for e in before] == [("message", "B0ALPHA", "U0ALPHA")]
    persona = await bot.event(lambda e: e.get("ts") == last["ts"])
    assert (persona["subtype"], persona["username"]) == ("bot_message", "Ada")


async def test_edits_deletions_and_reactions_arrive_in_their_shapes(slack: LocalSlack, bot: Any) -> None:
    ana = slack.as_person("ana")
    ts = await ana.say("general", "one")
    await ana.edit("general", ts, "two")
    changed = await bot.event(lambda e: e.get("subtype") == "message_changed")
    assert (changed["message"]["text"], changed["previous_message"]["text"]) == ("two", "one")
    assert changed["message"]["ts"] == ts
    assert changed["ts"] > ts
    await ana.react("general", ts, "eyes")
    added = await bot.event(lambda e: e["type"] == "reaction_added")
    assert (added["user"], added["reaction"], added["item_user"]) == ("U0ANA", "eyes", "U0ANA")
    assert added["item"] == {"type": "message", "channel": "C0GENERAL", "ts": ts}
    await ana.unreact("general", ts, "eyes")
    await bot.event(lambda e: e["type"] == "reaction_removed")
    await ana.delete("general", ts)
    deleted = await bot.event(lambda e: e.get("subtype") == "message_deleted")
    assert (deleted["deleted_ts"], deleted["previous_message"]["text"]) == (ts, "two")


async def test_deleting_a_root_with_replies_arrives_as_a_change_to_a_tombstone(slack: LocalSlack, bot: Any) -> None:
    ana = slack.as_person("ana")
    root = await ana.say("general", "root")
    reply = await ana.say("general", "reply", thread=root)
    await ana.delete("general", root)
    changed = await bot.event(lambda e: e.get("subtype") == "message_changed")
    assert (changed["message"]["subtype"], changed["message"]["ts"]) == ("tombstone", root)
    assert changed["previous_message"]["text"] == "root"
    arrived = await bot.event(lambda e: e.get("ts") == reply)
    assert (arrived["thread_ts"], arrived["parent_user_id"]) == (root, "U0ANA")


async def test_a_broadcast_reply_brings_its_root(slack: LocalSlack, bot: Any) -> None:
    ana = slack.as_person("ana")
    root = await ana.say("general", "root")
    await ana.say("general", "all", thread=root, broadcast=True)
    event = await bot.event(lambda e: e.get("subtype") == "thread_broadcast")
    assert (event["root"]["ts"], event["root"]["reply_count"]) == (root, 1)


async def test_a_channel_without_the_bot_is_silent() -> None:
    async with LocalSlack(channels=("general", "secret"), bot_channels=("general",)) as slack:
        ana = slack.as_person("ana")
        await ana.say("secret", "hello <@U0ALPHA>")
        assert slack.socket_mode.delivery.outstanding == 0
        await ana.say("general", "hello")
        assert slack.socket_mode.delivery.outstanding == 1


async def test_the_hello_and_the_envelope_have_slacks_fields(slack: LocalSlack, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    socket = await sockets.session.ws_connect(await sockets.url())
    hello = await socket.receive_json()
    assert (hello["type"], hello["num_connections"]) == ("hello", 1)
    assert hello["connection_info"] == {"app_id": "A0ALPHA"}
    await slack.as_person("ana").say("general", "hi")
    frame = await socket.receive_json()
    assert (frame["type"], frame["retry_attempt"], frame["accepts_response_payload"]) == ("events_api", 0, False)
    payload = frame["payload"]
    assert (payload["type"], payload["team_id"], payload["api_app_id"]) == (
        "event_callback",
        "T0LOCAL",
        "A0ALPHA",
    )
    assert payload["authorizations"][0]["user_id"] == "U0ALPHA"
    await socket.send_json({"type": "ping", "id": 7})
    assert await socket.receive_json() == {"type": "pong", "id": 7}


async def test_a_socket_url_opens_once(slack: LocalSlack, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    url = await sockets.url()
    await sockets.session.ws_connect(url)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await sockets.session.ws_connect(url)
    assert caught.value.status == 401


async def test_events_of_a_time_without_a_socket_are_delivered_upon_connection_in_order(
    slack: LocalSlack, raw_sockets: Any
) -> None:
    ana = slack.as_person("ana")
    stamps = [await ana.say("general", str(number)) for number in range(3)]
    socket = await raw_sockets(slack).open()
    assert [(await socket.acked_event())["ts"] for _ in stamps] == stamps
    await slack.until(lambda _: slack.socket_mode.delivery.outstanding == 0)


async def test_events_go_round_the_connections(slack: LocalSlack, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    one, two = await sockets.open(), await sockets.open()
    ana = slack.as_person("ana")
    stamps = [await ana.say("general", str(number)) for number in range(4)]
    assert [(await one.acked_event())["ts"] for _ in range(2)] == stamps[::2]
    assert [(await two.acked_event())["ts"] for _ in range(2)] == stamps[1::2]


async def test_an_event_without_an_ack_comes_again_until_it_is_given_up(raw_sockets: Any) -> None:
    async with LocalSlack(retries=QUICK) as slack:
        socket = await raw_sockets(slack).open()
        await slack.as_person("ana").say("general", "hi")
        frames = [await socket.frame() for _ in range(3)]
        assert len({frame["envelope_id"] for frame in frames}) == 1
        assert [(f["retry_attempt"], f["retry_reason"]) for f in frames] == [
            (0, ""),
            (1, "timeout"),
            (2, "timeout"),
        ]
        with pytest.raises(TimeoutError):
            await socket.frame(timeout_s=0.3)
        assert slack.socket_mode.delivery.outstanding == 0


async def test_an_event_lost_with_its_connection_comes_again_over_the_next(raw_sockets: Any) -> None:
    async with LocalSlack(retries=QUICK) as slack:
        sockets = raw_sockets(slack)
        first = await sockets.open()
        ts = await slack.as_person("ana").say("general", "hi")
        await first.frame()
        slack.socket_mode.drop()
        second = await sockets.open()
        frame = await second.frame()
        assert (frame["payload"]["event"]["ts"], frame["retry_attempt"]) == (ts, 1)


async def test_an_eleventh_connection_is_sent_away(slack: LocalSlack, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    for _ in range(10):
        await sockets.open()
    socket = await sockets.session.ws_connect(await sockets.url())
    frame = await socket.receive_json()
    assert (frame["type"], frame["reason"]) == ("disconnect", "too_many_websockets")
    assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
    assert slack.socket_mode.connections == 10


async def test_a_warning_changes_nothing_yet(slack: LocalSlack, raw_sockets: Any) -> None:
    socket = await raw_sockets(slack).open()
    slack.socket_mode.disconnect("warning")
    assert (await socket.frame())["reason"] == "warning"
    ts = await slack.as_person("ana").say("general", "still here?")
    assert (await socket.acked_event())["ts"] == ts


async def test_a_refreshed_connection_gets_no_more_events_but_may_still_ack(raw_sockets: Any) -> None:
    async with LocalSlack(retries=QUICK, refresh_grace_s=0.2) as slack:
        sockets = raw_sockets(slack)
        old, ana = await sockets.open(), slack.as_person("ana")
        await ana.say("general", "one")
        frame = await old.frame()
        slack.socket_mode.disconnect("refresh_requested")
        assert (await old.frame())["reason"] == "refresh_requested"
        await old.ack(frame)
        await slack.until(lambda _: slack.socket_mode.delivery.outstanding == 0)
        later = await ana.say("general", "two")
        assert (await old.socket.receive()).type == aiohttp.WSMsgType.CLOSE
        new = await sockets.open()
        assert (await new.acked_event())["ts"] == later


@pytest.mark.parametrize("reason", ["warning", "refresh_requested", "too_many_websockets"])
async def test_bolt_comes_back_after_a_disconnect(connect: Callable[..., Any], slack: LocalSlack, reason: Any) -> None:
    bot = await connect(slack)
    slack.socket_mode.disconnect(reason)
    await slack.until(lambda _: slack.socket_mode.opened == 2)
    ts = await slack.as_person("ana").say("general", "back?")
    await bot.event(lambda e: e.get("ts") == ts)


async def test_bolt_comes_back_after_a_dropped_connection(connect: Callable[..., Any], slack: LocalSlack) -> None:
    bot = await connect(slack, ping_interval_s=0.2)
    slack.socket_mode.drop()
    assert not slack.workspace.bot_online
    ts = await slack.as_person("ana").say("general", "back?")
    await bot.event(lambda e: e.get("ts") == ts)
    assert slack.workspace.bot_online


async def test_two_workspaces_do_not_know_each_other(raw_sockets: Any) -> None:
    async with LocalSlack() as one, LocalSlack() as two:
        assert one.url != two.url
        sockets = await asyncio.gather(raw_sockets(one).open(), raw_sockets(two).open())
        ts = await one.as_person("ana").say("general", "here")
        assert (await sockets[0].acked_event())["ts"] == ts
        assert two.workspace.messages("general") == ()
