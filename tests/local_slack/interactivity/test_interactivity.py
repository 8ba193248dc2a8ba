"""Clicks, menus, the Stop button and the home of the app, as the app hears of them."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from local_slack import LocalSlack, RetrySchedule, SlackRefused
from local_slack.interactivity.response_urls import ResponseUrls
from local_slack.workspace.messages import Body

Json = dict[str, Any]


def text(words: str) -> Json:
    return {"type": "plain_text", "text": words}


def button(action_id: str, value: str) -> Json:
    return {"type": "button", "action_id": action_id, "value": value, "text": text(value)}


def option(value: str) -> Json:
    return {"text": text(value), "value": value}


BLOCKS = [
    {"type": "section", "text": text("Shall I?"), "accessory": button("more", "details")},
    {"type": "actions", "block_id": "yes", "elements": [button("answer", "yes")]},
    {"type": "actions", "block_id": "no", "elements": [button("answer", "no")]},
    {
        "type": "actions",
        "elements": [{"type": "static_select", "action_id": "pick", "options": [option("a"), option("b")]}],
    },
]


async def post(client: AsyncWebClient, channel: str = "C0GENERAL", **given: Any) -> str:
    return str((await client.chat_postMessage(channel=channel, text="asked", blocks=BLOCKS, **given))["ts"])


async def clicked(socket: Any, click: Any, answer: Json | None = None) -> Json:
    """Click, take the envelope from the socket and acknowledge it; returns the payload."""
    clicking = asyncio.create_task(click)
    while (frame := await socket.frame())["type"] != "interactive":
        await socket.ack(frame)
    assert frame["accepts_response_payload"] is True
    await socket.socket.send_json({"envelope_id": frame["envelope_id"], **({"payload": answer} if answer else {})})
    await clicking
    payload: Json = frame["payload"]
    return payload


async def test_a_click_has_all_that_slack_sends(slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    root = await ana.say("general", "please")
    ts = await post(client, thread_ts=root)
    payload = await clicked(socket, ana.click("general", ts, "answer", "no"))
    assert payload["type"] == "block_actions"
    assert payload["user"] == {"id": "U0ANA", "username": "ana", "name": "ana", "team_id": "T0LOCAL"}
    assert payload["team"] == {"id": "T0LOCAL", "domain": "local"}
    assert payload["channel"] == {"id": "C0GENERAL", "name": "general"}
    assert payload["api_app_id"] == "A0ALPHA"
    assert payload["container"] == {
        "type": "message",
        "message_ts": ts,
        "channel_id": "C0GENERAL",
        "thread_ts": root,
        "is_ephemeral": False,
    }
    assert (payload["message"]["ts"], payload["message"]["bot_id"]) == (ts, "B0ALPHA")
    assert payload["response_url"].startswith(slack.url)
    assert payload["trigger_id"]
    (action,) = payload["actions"]
    assert float(action.pop("action_ts")) > 0
    assert (action.pop("text")["text"], action) == (
        "no",
        {"type": "button", "action_id": "answer", "block_id": "no", "value": "no"},
    )


async def test_without_a_value_it_is_the_first_button_of_that_name(
    slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any
) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    ts = await post(client)
    assert (await clicked(socket, ana.click("general", ts, "answer")))["actions"][0]["value"] == "yes"
    assert (await clicked(socket, ana.click("general", ts, "more")))["actions"][0]["value"] == "details"


async def test_a_menu_tells_what_was_chosen(slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    (action,) = (await clicked(socket, ana.click("general", await post(client), "pick", "b")))["actions"]
    assert (action["type"], action["selected_option"]["value"]) == ("static_select", "b")
    assert "value" not in action


async def test_a_click_in_a_direct_message_names_no_channel(
    slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any
) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    dm = await ana.open_dm("alpha")
    payload = await clicked(socket, ana.click(dm, await post(client, dm), "answer"))
    assert payload["channel"] == {"id": dm, "name": "directmessage"}


async def test_a_message_for_one_can_be_clicked_by_that_one_only(
    slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any
) -> None:
    socket = await raw_sockets(slack).open()
    answer = await client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", text="asked", blocks=BLOCKS)
    ts = str(answer["message_ts"])
    payload = await clicked(socket, slack.as_person("ana").click("general", ts, "answer"))
    assert payload["container"]["is_ephemeral"] is True
    assert "message" not in payload
    with pytest.raises(SlackRefused, match="message_not_found"):
        await slack.as_person("ben").click("general", ts, "answer")


@pytest.mark.parametrize(
    ("channel", "action_id", "value", "error"),
    [
        ("general", "answer", "maybe", "no_such_action"),
        ("general", "other", None, "no_such_action"),
        ("nowhere", "answer", None, "channel_not_found"),
        ("random", "answer", None, "message_not_found"),
    ],
)
async def test_what_is_not_there_cannot_be_clicked(  # noqa: PLR0917 - fixtures
    slack: LocalSlack, client: AsyncWebClient, channel: str, action_id: str, value: str | None, error: str
) -> None:
    ts = await post(client)
    with pytest.raises(SlackRefused, match=error):
        await slack.as_person("ana").click(channel, ts, action_id, value)


async def test_a_click_needs_an_app_that_is_there_and_answers(raw_sockets: Any, session: aiohttp.ClientSession) -> None:
    async with LocalSlack(retries=RetrySchedule(0.3, (0.0,))) as slack:
        client = AsyncWebClient(slack.bot_token, slack.api_url, session=session)
        ts, ana = await post(client), slack.as_person("ana")
        with pytest.raises(SlackRefused, match="not_connected"):
            await ana.click("general", ts, "answer")
        socket = await raw_sockets(slack).open()
        await socket.acked_event()
        with pytest.raises(SlackRefused, match="no_answer"):
            await ana.click("general", ts, "answer")
        assert (await socket.frame())["type"] == "interactive"
        later = await ana.say("general", "not again")
        assert (await socket.acked_event())["ts"] == later


async def test_the_page_clicks_with_the_token_of_a_person(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    body = {"channel": "C0GENERAL", "ts": await post(client), "action_id": "answer"}
    for token, error in ((slack.bot_token, "invalid_auth"), ("", "not_authed")):
        headers = {"Authorization": f"Bearer {token}"}
        async with session.post(slack.url + "page/click", json=body, headers=headers) as answer:
            assert await answer.json() == {"ok": False, "error": error}


async def test_the_payload_of_an_ack_is_recorded(slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    await clicked(socket, ana.click("general", await post(client), "answer"), {"text": "noted"})
    assert [e["payload"] for e in slack.record if e["what"] == "response_payload"] == [{"text": "noted"}]


async def test_the_response_url_replaces_answers_and_deletes(
    slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any
) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    root = await ana.say("general", "please")
    ts = await post(client, thread_ts=root)
    payload = await clicked(socket, ana.click("general", ts, "answer"))
    respond = AsyncWebhookClient(payload["response_url"])
    assert (await respond.send(text="only for you")).status_code == 200
    assert [(w.text, w.only_for) for w in slack.workspace.whispers("general")] == [("only for you", "U0ANA")]
    await respond.send_dict({"text": "for all", "response_type": "in_channel", "thread_ts": root})
    assert [m.text for m in slack.workspace.thread("C0GENERAL", root)] == ["please", "asked", "for all"]
    assert (await respond.send(text="done", replace_original=True)).body == "ok"
    replaced = slack.workspace.message("C0GENERAL", ts)
    assert replaced is not None
    assert (replaced.text, replaced.blocks) == ("done", ())
    await respond.send_dict({"delete_original": True})
    assert slack.workspace.message("C0GENERAL", ts) is None
    assert (await respond.send(text="")).status_code == 400
    await respond.send(text="the fifth")
    used = await respond.send(text="the sixth")
    assert (used.status_code, "used_url" in used.body) == (404, True)


async def test_the_response_url_of_nobody_and_of_long_ago_is_gone(slack: LocalSlack) -> None:
    unknown = await AsyncWebhookClient(slack.url + "actions/T0LOCAL/1/guessed").send(text="hi")
    assert (unknown.status_code, "expired_url" in unknown.body) == (404, True)
    now = [0.0]
    urls = ResponseUrls(clock=lambda: now[0])
    message = slack.workspace.post("general", slack.person("ana"), Body("hi"))
    path = urls.give(slack.workspace, message, slack.person("ana"))
    assert urls.problem(path) is None
    now[0] = 1801.0
    assert urls.problem(path) == "expired_url"


async def test_the_stop_button_tells_the_app_which_thread(slack: LocalSlack, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    await ana.stop_session("general", "1.000100")
    event = await socket.acked_event()
    assert float(event.pop("event_ts")) > 0
    assert event == {
        "type": "agent_session_stopped",
        "channel": "C0GENERAL",
        "thread_ts": "1.000100",
        "user": "U0ANA",
        "streaming_message_ts": [],
    }


async def test_who_opens_the_app_is_told_to_it(slack: LocalSlack, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    await ana.open_home()
    event = await socket.acked_event()
    assert (event["type"], event["user"], event["tab"]) == ("app_home_opened", "U0ANA", "messages")
    assert event["channel"] == await ana.open_dm("alpha")


async def test_an_app_without_the_subscription_hears_nothing_of_it() -> None:
    async with LocalSlack(events=("message",)) as slack:
        ana = slack.as_person("ana")
        await ana.stop_session("general", "1.000100")
        await ana.open_home()
        await ana.call("conversations.create", name="new")
        assert slack.socket_mode.delivery.outstanding == 0


async def test_who_joins_is_told_to_the_app(slack: LocalSlack, raw_sockets: Any, client: AsyncWebClient) -> None:
    socket = await raw_sockets(slack).open()
    await slack.as_person("ana").call("conversations.create", name="new")
    await slack.as_person("ana").call("conversations.invite", channel="C0NEW", users=slack.bot_user_id)
    event = await socket.acked_event()
    assert (event["type"], event["user"], event["inviter"]) == ("member_joined_channel", "U0ALPHA", "U0ANA")


async def test_a_click_opens_a_modal_once(slack: LocalSlack, client: AsyncWebClient, raw_sockets: Any) -> None:
    socket, ana = await raw_sockets(slack).open(), slack.as_person("ana")
    payload = await clicked(socket, ana.click("general", await post(client), "answer"))
    view = {"type": "modal", "title": text("Why"), "blocks": []}
    await client.views_open(trigger_id=payload["trigger_id"], view=view)
    with pytest.raises(SlackApiError, match="trigger_exchanged"):
        await client.views_open(trigger_id=payload["trigger_id"], view=view)


async def test_bolt_acknowledges_a_click_and_replaces_the_message(slack: LocalSlack, bot: Any) -> None:
    @bot.app.action("answer")
    async def answered(ack: Any, body: Json, respond: Any) -> None:
        await ack()
        await respond(f"{body['user']['name']} says {body['actions'][0]['value']}", replace_original=True)

    ts = await post(bot.client)
    await slack.as_person("ana").click("general", ts, "answer", "no")
    await slack.until(lambda w: w.messages("general")[0].text == "ana says no")
