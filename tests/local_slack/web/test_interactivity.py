"""Clicks, menus, the Stop button and the app's home, as the app receives them."""

from __future__ import annotations

import asyncio

import pytest
from slack_errors import error_of
from slack_sdk.webhook.async_client import AsyncWebhookClient

from local_slack import RetrySchedule
from local_slack.web.response_urls import Reply, ResponseUrls
from local_slack.workspace.messages import Body


def text(words):
    return {"type": "plain_text", "text": words}


def button(action_id, value):
    return {"type": "button", "action_id": action_id, "value": value, "text": text(value)}


OPTIONS = [{"text": text(value), "value": value} for value in "ab"]
BLOCKS = [
    {"type": "section", "text": text("Shall I?"), "accessory": button("more", "details")},
    {"type": "actions", "block_id": "yes", "elements": [button("answer", "yes")]},
    {"type": "actions", "block_id": "no", "elements": [button("answer", "no")]},
    {"type": "actions", "elements": [{"type": "static_select", "action_id": "pick", "options": OPTIONS}]},
]


@pytest.fixture
def post(client):
    async def post(channel="C0GENERAL", **fields):
        return str((await client.chat_postMessage(channel=channel, text="asked", blocks=BLOCKS, **fields))["ts"])

    return post


async def payload_of(click, socket, response=None):
    """Click, and acknowledge the envelope; return its payload."""
    clicking = asyncio.create_task(click)
    while (frame := await socket.frame())["type"] != "interactive":
        await socket.ack(frame)
    assert frame["accepts_response_payload"] is True
    payload = {"payload": response} if response else {}
    await socket.socket.send_json({"envelope_id": frame["envelope_id"], **payload})
    await clicking
    return frame["payload"]


async def test_a_click_has_the_fields_of_slack(slack, ana, socket, post):
    root = await ana.say("general", "please")
    ts = await post(thread_ts=root)
    payload = await payload_of(ana.click("general", ts, "answer", "no"), socket)
    assert payload["type"] == "block_actions"
    assert payload["user"] == {"id": "U0ANA", "username": "ana", "name": "ana", "team_id": "T0LOCAL"}
    assert payload["team"] == {"id": "T0LOCAL", "domain": "local"}
    assert payload["channel"] == {"id": "C0GENERAL", "name": "general"}
    assert payload["api_app_id"] == "A0ALPHA"
    place = {"message_ts": ts, "channel_id": "C0GENERAL", "thread_ts": root}
    assert payload["container"] == {"type": "message", **place, "is_ephemeral": False}
    assert (payload["message"]["ts"], payload["message"]["bot_id"]) == (ts, "B0ALPHA")
    assert payload["response_url"].startswith(slack.url)
    (action,) = payload["actions"]
    assert float(action.pop("action_ts")) > 0
    assert action.pop("text")["text"] == "no"
    assert action == {"type": "button", "action_id": "answer", "block_id": "no", "value": "no"}


async def test_without_a_value_the_first_button_of_the_name_is_clicked(ana, socket, post):
    ts = await post()
    for action_id, value in (("answer", "yes"), ("more", "details")):
        payload = await payload_of(ana.click("general", ts, action_id), socket)
        assert payload["actions"][0]["value"] == value


async def test_a_menu_sends_the_selected_option(ana, socket, post):
    (action,) = (await payload_of(ana.click("general", await post(), "pick", "b"), socket))["actions"]
    assert (action["type"], action["selected_option"]["value"]) == ("static_select", "b")
    assert "value" not in action


async def test_a_click_in_a_direct_message_has_no_channel_name(ana, socket, post):
    dm = await ana.open_dm("alpha")
    payload = await payload_of(ana.click(dm, await post(dm), "answer"), socket)
    assert payload["channel"] == {"id": dm, "name": "directmessage"}


async def test_an_ephemeral_message_can_be_clicked_by_its_recipient_only(slack, ana, client, socket):
    answer = await client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", text="asked", blocks=BLOCKS)
    ts = str(answer["message_ts"])
    payload = await payload_of(ana.click("general", ts, "answer"), socket)
    assert payload["container"]["is_ephemeral"] is True
    assert "message" not in payload
    assert await error_of(slack.as_person("ben").click("general", ts, "answer")) == "message_not_found"


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (("general", "answer", "maybe"), "no_such_action"),
        (("general", "other", None), "no_such_action"),
        (("nowhere", "answer", None), "channel_not_found"),
        (("random", "answer", None), "message_not_found"),
    ],
)
async def test_a_click_on_a_missing_element_is_refused(ana, post, place, error):
    channel, action_id, value = place
    assert await error_of(ana.click(channel, await post(), action_id, value)) == error


@pytest.mark.slack(retries=RetrySchedule(0.3, (0.0,)))
async def test_a_click_fails_without_an_app_that_answers_and_is_not_retried(ana, sockets, post):
    ts = await post()
    assert await error_of(ana.click("general", ts, "answer")) == "not_connected"
    socket = await sockets.open()
    await socket.acked_event()
    assert await error_of(ana.click("general", ts, "answer")) == "no_answer"
    assert (await socket.frame())["type"] == "interactive"
    later = await ana.say("general", "not again")
    assert (await socket.acked_event())["ts"] == later


async def test_a_click_needs_the_token_of_a_person(slack, post, session):
    body = {"channel": "C0GENERAL", "ts": await post(), "action_id": "answer"}
    for token, error in ((slack.bot_token, "invalid_auth"), ("", "not_authed")):
        headers = {"Authorization": f"Bearer {token}"}
        async with session.post(slack.url + "page/click", json=body, headers=headers) as answer:
            assert await answer.json() == {"ok": False, "error": error}


async def test_the_response_payload_of_an_acknowledgement_is_recorded(slack, ana, socket, post):
    await payload_of(ana.click("general", await post(), "answer"), socket, {"text": "noted"})
    assert [e["payload"] for e in slack.record if e["what"] == "response_payload"] == [{"text": "noted"}]


async def test_a_response_url_posts_replaces_and_deletes_five_times(slack, ana, socket, post):
    root = await ana.say("general", "please")
    ts = await post(thread_ts=root)
    payload = await payload_of(ana.click("general", ts, "answer"), socket)
    respond = AsyncWebhookClient(payload["response_url"])
    assert (await respond.send(text="only for you")).status_code == 200
    assert [(w.text, w.only_for) for w in slack.workspace.whispers("general")] == [("only for you", "U0ANA")]
    await respond.send_dict({"text": "for all", "response_type": "in_channel", "thread_ts": root})
    assert [m.text for m in slack.workspace.thread("C0GENERAL", root)] == ["please", "asked", "for all"]
    assert (await respond.send(text="done", replace_original=True)).body == "ok"
    replaced = slack.workspace.message("C0GENERAL", ts)
    assert (replaced.text, replaced.blocks) == ("done", ())
    await respond.send_dict({"delete_original": True})
    assert slack.workspace.message("C0GENERAL", ts) is None
    assert (await respond.send(text="")).status_code == 400
    await respond.send(text="the fifth")
    used = await respond.send(text="the sixth")
    assert (used.status_code, "used_url" in used.body) == (404, True)


async def test_an_unknown_or_old_response_url_is_expired(slack):
    unknown = await AsyncWebhookClient(slack.url + "actions/T0LOCAL/1/guessed").send(text="hi")
    assert (unknown.status_code, "expired_url" in unknown.body) == (404, True)
    now = [0.0]
    urls = ResponseUrls(clock=lambda: now[0])
    message = slack.workspace.post("general", slack.person("ana"), Body("hi"))
    path = urls.give(Reply(slack.workspace, "C0GENERAL", slack.person("ana"), message))
    assert urls.problem(path) is None
    now[0] = 1801.0
    assert urls.problem(path) == "expired_url"


async def test_the_stop_button_sends_the_thread(ana, socket):
    await ana.stop_session("general", "1.000100")
    event = await socket.acked_event()
    assert float(event.pop("event_ts")) > 0
    place = {"channel": "C0GENERAL", "thread_ts": "1.000100", "user": "U0ANA"}
    assert event == {"type": "agent_session_stopped", **place, "streaming_message_ts": []}


async def test_the_apps_home_and_new_members_are_events(slack, ana, socket):
    await ana.open_home()
    event = await socket.acked_event()
    assert (event["type"], event["user"], event["tab"]) == ("app_home_opened", "U0ANA", "messages")
    assert event["channel"] == (dm := await ana.open_dm("alpha"))
    for named, entities in (("general", ["C0GENERAL"]), (None, [])):
        await ana.look_at(named)
        event = await socket.acked_event()
        assert (event["type"], event["user"], event["channel"]) == ("app_context_changed", "U0ANA", dm)
        assert [each["value"] for each in event["context"].get("entities", ())] == entities
    await ana.call("conversations.create", name="new")
    await ana.call("conversations.invite", channel="C0NEW", users=slack.bot_user_id)
    event = await socket.acked_event()
    assert (event["type"], event["user"], event["inviter"]) == ("member_joined_channel", "U0ALPHA", "U0ANA")


@pytest.mark.slack(events=("message",))
async def test_an_app_receives_only_events_that_it_subscribed_to(slack, ana):
    await ana.stop_session("general", "1.000100")
    await ana.open_home()
    await ana.call("conversations.create", name="new")
    assert slack.socket_mode.delivery.outstanding == 0


async def test_the_trigger_of_a_click_opens_a_modal(client, ana, socket, post):
    payload = await payload_of(ana.click("general", await post(), "answer"), socket)
    view = {"type": "modal", "title": text("Why"), "blocks": []}
    assert (await client.views_open(trigger_id=payload["trigger_id"], view=view))["ok"]


async def test_bolt_acknowledges_a_click_and_replaces_the_message(slack, ana, bot, post):
    @bot.app.action("answer")
    async def answered(ack, body, respond):
        await ack()
        await respond(f"{body['user']['name']} says {body['actions'][0]['value']}", replace_original=True)

    await ana.click("general", await post(), "answer", "no")
    await slack.until(lambda w: w.messages("general")[0].text == "ana says no")
