"""Events over Socket Mode: with Bolt, or with raw frames where single frames matter."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from local_slack import LocalSlack, RetrySchedule

RETRIES = RetrySchedule(ack_timeout_s=0.05, delays_s=(0.0, 0.05))


async def test_a_mention_is_a_message_event_and_an_app_mention_event(bot, ana):
    ts = await ana.say("general", "hello @alpha")
    mention = await bot.event(lambda e: e["type"] == "app_mention")
    message = await bot.event(lambda e: e["type"] == "message")
    for event in (mention, message):
        assert (event["channel"], event["ts"], event["user"]) == ("C0GENERAL", ts, "U0ANA")
        assert event["text"] == "hello <@U0ALPHA>"
    assert message["channel_type"] == "channel"


async def test_a_direct_message_is_no_mention(bot, ana):
    await ana.dm("alpha", "hello <@U0ALPHA>")
    before = await bot.events_until(await ana.dm("alpha", "anyone?"))
    assert [(e["type"], e["channel_type"]) for e in before] == [("message", "im")]


async def test_posts_of_the_bot_are_events_but_no_mentions(bot):
    await bot.client.chat_postMessage(channel="C0GENERAL", text="I am <@U0ALPHA>")
    last = await bot.client.chat_postMessage(channel="C0GENERAL", text="as", username="Ada")
    before = await bot.events_until(last["ts"])
    assert [(e["type"], e["bot_id"], e["user"]) for e in before] == [("message", "B0ALPHA", "U0ALPHA")]
    persona = await bot.event(lambda e: e.get("ts") == last["ts"])
    assert (persona["subtype"], persona["username"]) == ("bot_message", "Ada")


async def test_edits_deletions_and_reactions_have_the_fields_of_slack(bot, ana):
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


async def test_the_deletion_of_a_root_with_replies_is_a_change_to_a_tombstone(bot, ana):
    root = await ana.say("general", "root")
    reply = await ana.say("general", "reply", thread=root)
    await ana.delete("general", root)
    changed = await bot.event(lambda e: e.get("subtype") == "message_changed")
    assert (changed["message"]["subtype"], changed["message"]["ts"]) == ("tombstone", root)
    assert changed["previous_message"]["text"] == "root"
    arrived = await bot.event(lambda e: e.get("ts") == reply)
    assert (arrived["thread_ts"], arrived["parent_user_id"]) == (root, "U0ANA")


async def test_a_broadcast_reply_contains_its_root(bot, ana):
    root = await ana.say("general", "root")
    await ana.say("general", "all", thread=root, broadcast=True)
    event = await bot.event(lambda e: e.get("subtype") == "thread_broadcast")
    assert (event["root"]["ts"], event["root"]["reply_count"]) == (root, 1)


@pytest.mark.slack(channels=("general", "secret"), bot_channels=("general",))
async def test_a_channel_without_the_bot_has_no_events(slack, ana):
    await ana.say("secret", "hello <@U0ALPHA>")
    assert slack.socket_mode.delivery.outstanding == 0
    await ana.say("general", "hello")
    assert slack.socket_mode.delivery.outstanding == 1


async def test_frames_have_the_fields_of_slack(slack, ana, sockets):
    socket = await sockets.connect(autoping=False)
    hello = await socket.receive_json()
    assert (hello["type"], hello["num_connections"]) == ("hello", 1)
    assert hello["connection_info"] == {"app_id": "A0ALPHA"}
    assert hello["debug_info"] == {"host": "applink-local", "build_number": 1, "approximate_connection_time": 18060}
    await ana.say("general", "hi")
    frame = await socket.receive_json()
    assert (frame["type"], frame["retry_attempt"], frame["accepts_response_payload"]) == ("events_api", 0, False)
    payload = frame["payload"]
    assert (payload["type"], payload["team_id"], payload["api_app_id"]) == ("event_callback", "T0LOCAL", "A0ALPHA")
    assert payload["authorizations"][0]["user_id"] == "U0ALPHA"
    await socket.send_json({"type": "ping", "id": 7})
    assert await socket.receive_json() == {"type": "pong", "id": 7}
    await socket.ping(b"there?")
    pong = await socket.receive(timeout=5)
    assert (pong.type, pong.data) == (aiohttp.WSMsgType.PONG, b"there?")
    await socket.close()
    assert socket.close_code == aiohttp.WSCloseCode.OK
    await slack.until(lambda _: slack.socket_mode.connections == 0)


async def test_a_url_opens_one_connection(sockets):
    url = await sockets.url()
    await sockets.session.ws_connect(url)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await sockets.session.ws_connect(url)
    assert caught.value.status == 401


async def test_events_without_a_connection_are_delivered_in_order_to_the_next(slack, ana, sockets):
    stamps = [await ana.say("general", str(number)) for number in range(3)]
    socket = await sockets.open()
    assert [(await socket.acked_event())["ts"] for _ in stamps] == stamps
    await slack.until(lambda _: slack.socket_mode.delivery.outstanding == 0)


@pytest.mark.slack(retries=RETRIES)
async def test_an_event_without_a_connection_until_the_last_retry_is_given_up(slack, ana, sockets):
    await ana.say("general", "lost")
    await slack.until(lambda _: slack.socket_mode.delivery.outstanding == 0)
    assert [entry["reason"] for entry in slack.record if entry["what"] == "given_up"] == ["not_connected"]
    socket = await sockets.open()
    ts = await ana.say("general", "hi")
    assert (await socket.acked_event())["ts"] == ts


async def test_events_are_distributed_over_the_connections(ana, sockets):
    one, two = await sockets.open(), await sockets.open()
    stamps = [await ana.say("general", str(number)) for number in range(4)]
    assert [(await one.acked_event())["ts"] for _ in range(2)] == stamps[::2]
    assert [(await two.acked_event())["ts"] for _ in range(2)] == stamps[1::2]


@pytest.mark.slack(retries=RETRIES)
async def test_an_event_without_an_acknowledgement_is_retried_and_then_given_up(slack, ana, socket):
    await ana.say("general", "hi")
    frames = [await socket.frame() for _ in range(3)]
    assert len({frame["envelope_id"] for frame in frames}) == 1
    retries = [(frame["retry_attempt"], frame["retry_reason"]) for frame in frames]
    assert retries == [(0, ""), (1, "timeout"), (2, "timeout")]
    with pytest.raises(TimeoutError):
        await socket.frame(timeout_s=0.3)
    assert slack.socket_mode.delivery.outstanding == 0


@pytest.mark.slack(retries=RETRIES)
async def test_an_event_lost_with_its_connection_is_retried_over_the_next(slack, ana, sockets):
    first = await sockets.open()
    ts = await ana.say("general", "hi")
    await first.frame()
    slack.socket_mode.drop()
    frame = await (await sockets.open()).frame()
    assert (frame["payload"]["event"]["ts"], frame["retry_attempt"]) == (ts, 1)


async def test_an_eleventh_connection_is_closed(slack, sockets):
    for _ in range(10):
        await sockets.open()
    socket = await sockets.connect()
    frame = await socket.receive_json()
    assert (frame["type"], frame["reason"]) == ("disconnect", "too_many_websockets")
    assert (await socket.receive()).type == aiohttp.WSMsgType.CLOSE
    assert slack.socket_mode.connections == 10


async def test_a_warning_does_not_close_the_connection(slack, ana, socket):
    slack.socket_mode.disconnect("warning")
    assert (await socket.frame())["reason"] == "warning"
    ts = await ana.say("general", "still here?")
    assert (await socket.acked_event())["ts"] == ts


@pytest.mark.slack(refresh_grace_s=0.2)
async def test_a_connection_to_be_refreshed_accepts_acknowledgements_only(slack, ana, sockets):
    old = await sockets.open()
    await ana.say("general", "one")
    frame = await old.frame()
    slack.socket_mode.disconnect("refresh_requested")
    assert (await old.frame())["reason"] == "refresh_requested"
    await old.ack(frame)
    await slack.until(lambda _: slack.socket_mode.delivery.outstanding == 0)
    later = await ana.say("general", "two")
    assert (await old.socket.receive()).type == aiohttp.WSMsgType.CLOSE
    assert (await (await sockets.open()).acked_event())["ts"] == later


@pytest.mark.parametrize("end", ["warning", "refresh_requested", "too_many_websockets", "drop", "freeze"])
async def test_bolt_reconnects(slack, ana, connect, end):
    bot = await connect(slack, ping_interval_s=0.1)
    if end in {"drop", "freeze"}:
        getattr(slack.socket_mode, end)()
    else:
        slack.socket_mode.disconnect(end)
    await slack.until(lambda _: slack.socket_mode.opened == 2)
    ts = await ana.say("general", "back?")
    await bot.event(lambda e: e.get("ts") == ts)
    assert slack.workspace.bot_online


async def test_two_local_slacks_are_independent(raw_sockets):
    async with LocalSlack() as one, LocalSlack() as two:
        assert one.url != two.url
        sockets = await asyncio.gather(raw_sockets(one).open(), raw_sockets(two).open())
        ts = await one.as_person("ana").say("general", "here")
        assert (await sockets[0].acked_event())["ts"] == ts
        assert two.workspace.messages("general") == ()
