"""Slash commands, shortcuts, the Home tab, and answers to them, as the app receives and gives them."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl

import pytest
from aiohttp import web
from endpoint import endpoint
from slack_errors import error_of
from slack_sdk.webhook.async_client import AsyncWebhookClient

from local_slack import LocalSlack, RetrySchedule, Shortcut, SlackRefused

MANIFEST = {
    "features": {
        "slash_commands": [{"command": "/raw"}, {"command": "/escaped", "should_escape": True}],
        "shortcuts": [{"callback_id": "new", "name": "New task", "type": "global", "description": "Begins one"}],
    }
}
SHORTCUTS = (Shortcut("ask", "Ask"),)
BUTTON = {"type": "button", "action_id": "go", "text": {"type": "plain_text", "text": "Go"}}
BLOCKS = [{"type": "actions", "elements": [BUTTON]}]

pytestmark = pytest.mark.slack(manifest=MANIFEST, commands=("/agent", "/deploy"), shortcuts=SHORTCUTS)


@pytest.fixture
def answered(socket):
    """Do something as a person and acknowledge the frame of it with the payload; return both results."""

    async def answered(gesture, **payload):
        doing = asyncio.create_task(gesture)
        while (frame := await socket.frame())["type"] == "events_api":
            await socket.ack(frame)
        body = {"payload": payload} if payload else {}
        await socket.socket.send_json({"envelope_id": frame["envelope_id"], **body})
        try:
            return frame, await doing
        finally:
            del doing  # its error and this frame would keep the connection open until the next collection of garbage

    return answered


async def test_a_command_has_the_fields_of_slack(slack, ana, client, answered):
    frame, ts = await answered(ana.command("general", "/agent  say hello"))
    assert (frame["type"], frame["accepts_response_payload"], ts) == ("slash_commands", True, None)
    payload = frame["payload"]
    assert payload.pop("response_url").startswith(slack.url)
    trigger = payload.pop("trigger_id")
    assert payload.pop("token")
    assert payload == {
        "team_id": "T0LOCAL",
        "team_domain": "local",
        "channel_id": "C0GENERAL",
        "channel_name": "general",
        "user_id": "U0ANA",
        "user_name": "ana",
        "command": "/agent",
        "text": "say hello",
        "api_app_id": "A0ALPHA",
        "is_enterprise_install": "false",
    }
    title = {"type": "plain_text", "text": "Why"}
    await client.views_open(trigger_id=trigger, view={"type": "modal", "title": title, "blocks": []})
    assert ana.modal.content["title"]["text"] == "Why"


@pytest.mark.parametrize(("name", "text"), [("/raw", "ask @ben"), ("/agent", "ask @ben"), ("/escaped", "ask <@U0BEN>")])
async def test_mentions_in_a_command_are_escaped_if_the_manifest_says_so(ana, answered, name, text):
    frame, _ = await answered(ana.command("general", f"{name} ask @ben"))
    assert frame["payload"]["text"] == text


async def test_a_command_works_in_a_direct_message(ana, answered):
    for name in ("alpha", "ben"):
        dm = await ana.open_dm(name)
        frame, ts = await answered(ana.command(dm, "/agent"), text="here")
        assert (frame["payload"]["channel_id"], frame["payload"]["channel_name"]) == (dm, "directmessage")
        assert ts


@pytest.mark.slack(bot_channels=("random",))
@pytest.mark.parametrize("kind", ["ephemeral", "in_channel"])
async def test_the_acknowledgement_of_a_command_is_shown_also_where_the_bot_is_not(slack, ana, answered, kind):
    _, ts = await answered(ana.command("general", "/agent"), text="Done", blocks=BLOCKS, response_type=kind)
    seen = slack.workspace.messages("general") if kind == "in_channel" else slack.workspace.whispers("general")
    (message,) = seen
    assert (message.ts, message.text, message.user) == (ts, "Done", "U0ALPHA")
    assert message.only_for == (None if kind == "in_channel" else "U0ANA")
    assert message.blocks[0]["block_id"]


async def test_the_response_url_of_a_command_posts_again(slack, ana, answered):
    frame, _ = await answered(ana.command("general", "/agent"))
    respond = AsyncWebhookClient(frame["payload"]["response_url"])
    assert (await respond.send(text="later", response_type="in_channel")).status_code == 200
    assert (await respond.send(text="only you", replace_original=True)).status_code == 200
    assert [m.text for m in slack.workspace.messages("general")] == ["later"]
    assert [m.text for m in slack.workspace.whispers("general")] == ["only you"]


@pytest.mark.parametrize(
    ("place", "text", "error"),
    [
        ("general", "/unknown", "unknown_command"),
        ("general", "agent", "unknown_command"),
        ("general", "/", "unknown_command"),
        ("general", "/agent " + "x" * 40_000, "msg_too_long"),
        ("nowhere", "/agent", "channel_not_found"),
    ],
)
async def test_a_command_that_slack_does_not_take_is_refused(ana, place, text, error):
    assert await error_of(ana.command(place, text)) == error


async def test_slack_says_why_a_command_does_not_run(ana):
    with pytest.raises(SlackRefused, match="unknown_command") as refused:
        await ana.command("general", "/dance")
    assert refused.value.messages[0].startswith("/dance is not a valid command. In Slack, all messages that start with")
    root = await ana.say("general", "root")
    with pytest.raises(SlackRefused, match="not_supported_in_threads") as refused:
        await ana.command("general", "/agent", thread=root)
    assert refused.value.messages == ("/agent is not supported in threads. Sorry!",)
    with pytest.raises(SlackRefused, match="dispatch_failed") as refused:
        await ana.command("general", "/agent")
    assert refused.value.messages == ('/agent failed with the error "dispatch_failed"',)


async def test_a_direct_message_of_others_takes_no_command(slack, ana):
    dm = await slack.as_person("ben").open_dm("chloe")
    assert await error_of(ana.command(dm, "/agent")) == "channel_not_found"


@pytest.mark.slack(retries=RetrySchedule(0.2, ()))
async def test_a_command_without_an_acknowledgement_fails_for_the_person_only(slack, ana, sockets):
    assert await error_of(ana.command("general", "/agent")) == "dispatch_failed"
    socket = await sockets.open()
    assert await error_of(ana.command("general", "/agent")) == "operation_timeout"
    assert (await socket.frame())["type"] == "slash_commands"
    assert slack.workspace.messages("general") == slack.workspace.whispers("general") == ()


@pytest.mark.parametrize("answer", [{"text": 5.5, "blocks": 7}, {"blocks": [{"type": "x"}]}, {"text": "x" * 40_001}])
async def test_an_invalid_answer_to_a_command_is_refused(slack, ana, answered, answer):
    with pytest.raises(SlackRefused):
        await answered(ana.command("general", "/agent"), **answer)
    assert slack.workspace.whispers("general") == ()


@pytest.mark.parametrize(
    ("content_type", "body", "shown"),
    [
        ("text/plain", "Noted", ["Noted"]),
        ("application/json", '{"text": "As JSON"}', ["As JSON"]),
        ("text/plain", "", []),
    ],
)
async def test_a_command_over_http_is_a_form_and_its_answer_may_be_plain(content_type, body, shown):
    async with endpoint() as app, LocalSlack(commands=("/agent",), request_url=app.url) as slack:
        app.answers.append(lambda: web.Response(text=body, content_type=content_type))
        await slack.as_person("ana").command("general", "/agent a & b")
        (request,) = await app.received(1)
        fields = dict(parse_qsl(request.body.decode()))
        assert (fields["command"], fields["text"], fields["user_name"]) == ("/agent", "a & b", "ana")
        assert "payload" not in fields
        assert [each.text for each in slack.workspace.whispers("general")] == shown


async def test_a_message_shortcut_has_the_message(slack, ana, answered):
    root = await ana.say("general", "root")
    ts = await slack.as_person("ben").say("general", "the reply", thread=root)
    payload = (await answered(ana.shortcut("ask", "general", ts)))[0]["payload"]
    assert (payload["type"], payload["callback_id"], payload["message_ts"]) == ("message_action", "ask", ts)
    assert payload["channel"] == {"id": "C0GENERAL", "name": "general"}
    message = payload["message"]
    assert (message["text"], message["user"], message["thread_ts"]) == ("the reply", "U0BEN", root)
    await AsyncWebhookClient(payload["response_url"]).send(text="for you")
    assert [w.text for w in slack.workspace.whispers("general")] == ["for you"]
    assert slack.workspace.views.take_trigger(payload["trigger_id"]) == "U0ANA"


async def test_a_global_shortcut_has_no_place(ana, answered):
    payload = (await answered(ana.shortcut("new")))[0]["payload"]
    assert (payload["type"], payload["callback_id"], payload["user"]["id"]) == ("shortcut", "new", "U0ANA")
    assert not {"channel", "message", "response_url"} & payload.keys()


async def test_a_shortcut_that_is_not_there_is_refused(ana, slack, client):
    ts = await ana.say("general", "hi")
    whisper = (await client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", text="psst"))["message_ts"]
    for arguments, error in (
        (("ask",), "no_such_shortcut"),
        (("new", "general", ts), "no_such_shortcut"),
        (("ask", "general", "1.0"), "message_not_found"),
        (("ask", "general", whisper), "message_not_found"),
    ):
        assert await error_of(ana.shortcut(*arguments)) == error
    dm = await slack.as_person("ben").dm("chloe", "between us")
    assert await error_of(ana.shortcut("ask", "D0BENCHLOE", dm)) == "not_in_channel"


@pytest.mark.parametrize(
    ("gesture", "body", "error"),
    [
        ("command", {"channel": "C0GENERAL"}, "invalid_arguments"),
        ("command", {"channel": ["C0GENERAL"], "text": "/agent"}, "invalid_arguments"),
        ("command", {"channel": "C0GENERAL", "text": {"text": "/agent"}}, "invalid_arguments"),
        ("command", {"channel": "C0GENERAL", "text": "/agent", "thread_ts": "then"}, "invalid_thread_ts"),
        ("shortcut", {}, "invalid_arguments"),
        ("shortcut", {"callback_id": ["new"]}, "invalid_arguments"),
        ("shortcut", {"callback_id": "ask", "ts": "1.0"}, "invalid_arguments"),
        ("click_home", {"action_id": "go"}, "not_found"),
        ("click_modal", {"action_id": "go"}, "no_modal"),
        ("click_modal", {"action_id": "go", "view_id": "V0OTHER"}, "no_modal"),
        ("click", {"channel": "C0GENERAL", "ts": "TS", "action_id": {}}, "invalid_arguments"),
        ("click", {"channel": "C0GENERAL", "ts": "TS", "action_id": "go", "value": [[]]}, "no_such_action"),
        ("click", {"channel": "C0GENERAL", "ts": "TS", "action_id": "go", "state": {"b": 1}}, "invalid_arguments"),
        ("click", {"channel": "C0GENERAL", "ts": "TS", "action_id": "go", "values": {"note": {}}}, "invalid_arguments"),
        ("close_view", {}, "no_modal"),
        ("submit_view", {"state": "[["}, "no_modal"),
        ("open_home", {"tab": 7}, "invalid_arguments"),
    ],
)
async def test_a_malformed_gesture_is_refused(  # noqa: PLR0917 - fixtures and parameters
    slack, client, session, gesture, body, error
):
    note = {"type": "plain_text_input", "action_id": "note"}
    blocks = [*BLOCKS, {"type": "input", "label": BUTTON["text"], "element": note}]
    ts = (await client.chat_postMessage(channel="C0GENERAL", text="?", blocks=blocks))["ts"]
    given = {name: ts if value == "TS" else value for name, value in body.items()}
    headers = {"Authorization": f"Bearer {slack.person('ana').token}"}
    async with session.post(f"{slack.url}page/{gesture}", json=given, headers=headers) as answer:
        assert (answer.status, (await answer.json())["error"]) == (200, error)


async def test_the_home_tab_is_opened_with_the_published_view(ana, socket, client):
    await ana.open_home("home")
    event = await socket.acked_event()
    assert (event["type"], event["tab"], event["user"], "view" in event) == ("app_home_opened", "home", "U0ANA", False)
    assert ana.home is None
    await client.views_publish(user_id="U0ANA", view={"type": "home", "blocks": BLOCKS, "private_metadata": "m"})
    await ana.open_home("home")
    view = (await socket.acked_event())["view"]
    assert (view["id"], view["type"], view["private_metadata"]) == (ana.home.id, "home", "m")
    assert await error_of(ana.open_home("about")) == "invalid_arguments"


async def test_a_response_url_changes_and_deletes_the_ephemeral_message(slack, ana, client, answered):
    answer = await client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", text="sure?", blocks=BLOCKS)
    payload = (await answered(ana.click("general", answer["message_ts"], "go")))[0]["payload"]
    respond = AsyncWebhookClient(payload["response_url"])
    assert (await respond.send(text="done", replace_original=True)).status_code == 200
    (whisper,) = slack.workspace.whispers("general")
    assert (whisper.ts, whisper.text, whisper.blocks) == (answer["message_ts"], "done", ())
    assert (await respond.send(delete_original=True)).status_code == 200
    assert slack.workspace.whispers("general") == ()
    assert (await respond.send(text="again", replace_original=True)).status_code == 400


def test_the_derived_manifest_lists_commands_and_shortcuts():
    slack = LocalSlack(commands=("/agent",), shortcuts=SHORTCUTS)
    features = slack._slack_app.manifest(messages_tab=True)["features"]
    assert [each["command"] for each in features["slash_commands"]] == ["/agent"]
    assert features["shortcuts"] == [{"callback_id": "ask", "name": "Ask", "type": "message", "description": "Ask"}]


@pytest.mark.parametrize("command", ["agent", "/", "/Agent", "/a b", "/" + "x" * 32])
def test_the_name_of_a_command_is_checked(command):
    with pytest.raises(ValueError, match="a command is"):
        LocalSlack(commands=(command,))


@pytest.mark.parametrize("arguments", [("", "Ask"), ("ask", ""), ("ask", "x" * 25), ("ask", "Ask", "other")])
def test_a_shortcut_is_checked(arguments):
    with pytest.raises(ValueError, match="a shortcut is"):
        Shortcut(*arguments)
