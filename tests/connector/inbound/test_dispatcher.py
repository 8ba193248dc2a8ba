"""Both transports lead to the same handling, and acknowledge everything."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ports import free_port
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs

from connector import ConnectionRefused, HttpTransport
from connector.events import SlashCommand
from connector.inbound.dispatcher import Dispatcher, Reply
from connector.inbound.intake import NotNow
from connector.protocols import SlackOptions
from connector.setup import Identity
from local_slack import LocalSlack, RetrySchedule
from local_slack.delivery.faults import Delayed, Dropped, Duplicated
from service.config.config import load_config

CONFIGURATION_PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def http_transport(slack: LocalSlack) -> HttpTransport:
    return HttpTransport(slack.signing_secret, "127.0.0.1", free_port())


@pytest.fixture(params=["socket", "http"])
async def connect(request, process):
    """Connect by one of the transports."""
    return lambda slack: process(on=slack, transport=http_transport(slack) if request.param == "http" else None)


@pytest.fixture
async def chat(connect):
    async with (
        LocalSlack(limits=None, retries=RetrySchedule(0.3, (0, 0.05, 0.05))) as slack,
        connect(slack) as chat,
    ):
        yield chat


async def is_acknowledged(chat, envelope: str) -> bool:
    await chat.acknowledged(2.5)
    return any(entry["what"] == "acked" and entry["envelope"] == envelope for entry in chat.slack.record)


async def test_a_mention_starts_a_run_a_reply_is_injected_and_the_stop_button_stops(chat):
    chat.sessions.obedient = True
    thread = await chat.start()
    await thread.inject("and that")
    await thread.run.deliver()
    await chat.ana.stop_session("general", thread.ts)
    await thread.contains("🛑 Stopped by Ana.")
    await chat.acknowledged()
    assert chat.sessions.prompts == ["look"]


@pytest.mark.parametrize("fault", [Duplicated(), Delayed(), Dropped()])
async def test_an_event_that_arrives_twice_late_or_at_the_second_attempt_is_one_message(chat, fault):
    chat.slack.deliveries.next(fault)
    thread = await chat.start()
    chat.slack.deliveries.next(fault)
    await thread.say("one")
    await thread.say("two")
    await thread.run.until(lambda r: len(r.injections) == 2)
    await chat.acknowledged()
    assert sorted(thread.run.texts) == ["one", "two"]
    assert chat.sessions.prompts == ["look"]


@pytest.mark.parametrize(
    "kinds", [["message"], ["app_mention"], ["message", "app_mention"] * 3, ["app_mention", "message"] * 3]
)
async def test_a_mention_is_one_message_whichever_of_its_events_arrive_and_how_often(chat, kinds):
    for kind in kinds:
        chat.deliver({**chat.posted("1700000000.000100", f"<@{chat.slack.bot_user_id}> look"), "type": kind})
    assert (await chat.sessions.next_run()).prompt == "look"
    await chat.acknowledged()
    assert chat.sessions.prompts == ["look"]


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "event_callback", "event": {"type": "app_home_opened", "user": "U1", "tab": "messages"}},
        {"type": "event_callback", "event": {"type": "a_type_of_tomorrow"}},
        {"type": "event_callback", "event": {"type": "message"}},
        {"type": "event_callback", "event": {"type": "message", "subtype": "message_deleted", "channel": "C1"}},
        {"type": "event_callback", "event": {"type": "reaction_added", "item": {"type": "file"}}},
        {"type": "event_callback", "event": {"type": "agent_session_stopped"}},
        {"type": "event_callback", "event": []},
        {"type": "event_callback"},
        {"type": "block_actions", "actions": []},
        {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"action_id": "feedback", "value": "1"}]},
        {"type": "view_submission", "user": {"id": "U1"}, "view": {"callback_id": "x"}},
        {"type": "message_action", "callback_id": "x", "user": {"id": "U1"}},
        {"type": "block_suggestion", "action_id": "x", "user": {"id": "U1"}},
        {"type": "of tomorrow"},
        {"type": 7},
        {},
        {"command": "/agent", "text": "", "user_id": "U1", "team_id": "T0LOCAL"},
    ],
)
async def test_payloads_without_a_meaning_for_the_bot_are_acknowledged(chat, payload):
    kind = "events_api" if payload.get("type") == "event_callback" else "interactive"
    assert await is_acknowledged(chat, chat.deliver_payload(payload, kind))


async def test_an_event_of_another_workspace_is_acknowledged_and_ignored(chat):
    with capture_logs() as logs:
        chat.deliver(chat.posted("1700000000.000100", "hello", channel_type="im"), team_id="T0OTHER")
        await chat.acknowledged()
    assert [log["teams"] for log in logs if log["event"] == "slack.other_team"] == [["T0OTHER"]]
    assert chat.sessions.idle


async def test_an_event_of_another_workspace_in_a_shared_channel_is_handled(chat):
    channel = await chat.ana.open_dm("alpha")
    event = {**chat.posted("1700000000.000100", "hello"), "channel": channel, "channel_type": "im"}
    chat.deliver(event, team_id="T0OTHER", context_team_id=chat.slack.team_id)
    run = await chat.sessions.next_run()
    assert (run.conversation, run.prompt) == (f"{chat.slack.team_id}:{channel}:1700000000.000100", "hello")


async def test_the_log_reports_that_slack_sends_no_more_events(chat):
    with capture_logs() as logs:
        chat.slack.notify_rate_limited()
        await chat.acknowledged()
    assert [log["team"] for log in logs if log["event"] == "slack.events_limited"] == [chat.slack.team_id]


async def test_many_replies_without_an_agent_are_acknowledged_within_the_rate_limits_and_delay_no_mention(
    connect, sessions
):
    async with LocalSlack() as slack:
        ana, ben = slack.as_person("ana"), slack.as_person("ben")
        roots = [await ana.say("random", "nothing for a bot") for _ in range(60)]
        slack.socket_mode.delivery.close()  # these events are never delivered
        async with connect(slack) as chat:
            for root in roots:
                await ben.say("random", "indeed", thread=root)
            await chat.start()
            await chat.acknowledged()
            assert [entry for entry in slack.record if entry["what"] == "not_acked"] == []
            assert len(chat.calls("conversations.replies")) <= 10


MESSAGE = {"type": "message", "channel": "C1", "user": "U1", "text": "hello", "ts": "1.0", "channel_type": "im"}
MALFORMED = [
    {**MESSAGE, "ts": "abc"},
    {**MESSAGE, "ts": "nan"},
    {**MESSAGE, "thread_ts": "zzz"},
    {**MESSAGE, "user": {"id": "U1"}},
    {**MESSAGE, "channel": 5},
    {"type": "message", "user": "U1", "text": "hello"},
    {"type": "message", "subtype": "message_changed", "channel": "C1", "ts": "1.0", "message": "a string"},
    {"type": "message", "subtype": "message_deleted", "channel": "C1", "event_ts": 7, "previous_message": MESSAGE},
    {"type": "reaction_added", "reaction": "x", "item": {"type": "message", "channel": "C1", "ts": "1.0"}},
    {"type": "reaction_added", "reaction": "x", "user": "U1", "item": "a string", "event_ts": "1.0"},
    {"type": "agent_session_stopped", "user": "U1", "channel": "C1", "thread_ts": [], "event_ts": "1.0"},
]


async def test_a_malformed_event_is_one_line_in_the_log_and_is_not_repeated(chat):
    with capture_logs() as logs:
        for event in MALFORMED:
            chat.deliver(event)
        await chat.acknowledged()
    # Bolt drops the events that it cannot parse itself.
    assert sum(log["event"] in ("event.unreadable", "slack.payload_unreadable") for log in logs) == len(MALFORMED)
    assert all(log["event"] != "event.failed" for log in logs)
    assert not [entry for entry in chat.slack.record if entry["what"] == "retried"]


async def test_half_a_character_in_a_message_is_replaced(chat):
    dm = await chat.ana.open_dm("alpha")
    chat.deliver(
        {**MESSAGE, "user": chat.ana.person.id, "channel": dm, "ts": "1700000000.000100", "text": "a \ud800 b"}
    )
    assert (await chat.sessions.next_run()).prompt == "a ? b"


class Intake:
    """Counts what it accepts, or refuses it because the service is closing."""

    def __init__(self, *, is_closing: bool = False) -> None:
        self.count = 0
        self._is_closing = is_closing

    async def accept(self, *_: object, **__: object) -> None:
        if self._is_closing:
            raise NotNow
        self.count += 1

    async def on_command(self, command: SlashCommand, _: object) -> str | None:
        await self.accept()
        return f"{command.text}?" if command.name == "/agent" else None

    options = SlackOptions()
    on_message = on_edit = on_deletion = on_reaction = on_stop = on_view = on_shortcut = on_rating = accept


def dispatcher_of(intake: Intake) -> Dispatcher:
    return Dispatcher(AsyncWebClient(), "xoxb-1", Identity("T1", "U0BOT", "B0BOT"), intake)


WORDS = (  # noqa: SIM905 - a list would take a line for each word
    "event_callback block_actions message app_mention reaction_added agent_session_stopped message_changed "
    "message_deleted view_submission app_home_opened app_context_changed assistant_thread_started "
    "stop U1 C1 D1 T1 1700000000.000100"
).split()
KEYS = (  # noqa: SIM905
    "type event subtype user channel ts event_ts text item reaction message team previous_message actions action_id "
    "action_ts container id authorizations view team_id assistant_thread user_id channel_id context entities value tab"
).split()
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(WORDS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)),
    max_leaves=20,
)
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.builds(lambda event: {"type": "event_callback", "event": event}, VALUES),
    st.builds(lambda rest: {**rest, "type": "block_actions"}, st.dictionaries(st.sampled_from(KEYS), VALUES)),
)


@settings(max_examples=60, deadline=None)
@given(BODIES)
def test_every_body_is_acknowledged(body):
    assert asyncio.run(dispatcher_of(Intake()).receive(body)) == Reply(200)


async def test_the_answer_to_our_slash_command_is_in_the_acknowledgement():
    body = {"command": "/agent", "text": " status ", "user_id": "U1", "channel_id": "C1", "team_id": "T1"}
    answer = {"response_type": "ephemeral", "text": "status?"}
    assert await dispatcher_of(Intake()).receive(body) == Reply(200, answer)
    assert await dispatcher_of(Intake(is_closing=True)).receive(body) == Reply(503)
    assert await dispatcher_of(Intake()).receive({**body, "command": "/other"}) == Reply(200)


async def test_an_event_that_the_intake_cannot_accept_is_requested_again():
    body = {"type": "event_callback", "team_id": "T1", "event": {**MESSAGE, "ts": "1700000000.000100"}}
    assert await dispatcher_of(intake := Intake()).receive(body) == Reply(200)
    assert intake.count == 1
    assert await dispatcher_of(Intake(is_closing=True)).receive(body) == Reply(503)


async def test_the_documented_listeners_receive_events_and_commands_besides_the_agents(
    process, slack, tmp_path, monkeypatch
):
    (code,) = re.findall(r"^```python\n(.*?)^```$", CONFIGURATION_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "team_listeners.py").write_text(code)
    (tmp_path / "agents.yaml").write_text("slack: {listeners: ['team_listeners:register']}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "team_listeners", raising=False)
    listeners = load_config(tmp_path / "agents.yaml").slack.listeners
    async with process(listeners=listeners) as chat:
        thread = await chat.start()
        await chat.ana.react("general", thread.ts, "ticket")
        await thread.contains("I filed a ticket.")
        await thread.cross(thread.ts)
        await thread.stopped()
        command = {"command": "/on-call", "user_id": "U1", "team_id": slack.team_id, "channel_id": chat.general}
        envelope = chat.deliver_payload({**command, "text": ""}, "slash_commands")
        await slack.until(lambda ws: any(each.text == "Ada is on call today." for each in ws.messages("general")))
        assert await is_acknowledged(chat, envelope)


async def test_the_text_or_object_that_a_listener_acknowledges_with_is_sent():
    def register(app):
        @app.command("/where")
        async def on_command(ack):
            await ack("Here.")

        @app.view("form")
        async def on_view(ack):
            await ack(response_action="clear")

    dispatcher = dispatcher_of(Intake())
    await dispatcher.add_listeners([register])
    command = {"command": "/where", "text": "", "user_id": "U1", "team_id": "T1"}
    assert await dispatcher.receive(command) == Reply(200, {"text": "Here."})
    view = {
        "type": "view_submission",
        "team": {"id": "T1"},
        "user": {"id": "U1"},
        "view": {"type": "modal", "callback_id": "form"},
    }
    assert await dispatcher.receive(view) == Reply(200, {"response_action": "clear"})


async def test_a_failing_listener_of_a_deployment_is_logged_and_its_event_is_stored_and_acknowledged_once(
    process, slack, caplog
):
    received: list[str] = []

    async def register(app):
        @app.event("message")
        async def fail_at_messages(event):
            received.append(event["text"])
            raise RuntimeError("a defect of the deployment")

        @app.event("app_home_opened")
        async def record_home(event):
            received.append(event["type"])

        @app.use
        async def fail_at_mentions(body, next_):
            if body["event"]["type"] == "app_mention":
                raise RuntimeError("a defect of its middleware")
            await next_()

    async with process(listeners=[register]) as chat:
        thread = await chat.start("@alpha look")
        await thread.inject("and that")
        chat.deliver({"type": "app_home_opened", "user": "U1", "tab": "messages"})
        await chat.acknowledged()
        assert [text.split()[-1] for text in received] == ["look", "that", "app_home_opened"]
        assert not [entry for entry in slack.record if entry["what"] in ("retried", "not_acked")]
    assert "a defect of the deployment" in caplog.text


async def test_a_function_that_fails_to_add_its_listeners_ends_the_start_with_its_name(process):
    def register(_app):
        raise LookupError("no database")

    with pytest.raises(ConnectionRefused, match=r"slack\.listeners: .*register failed \(LookupError: no database\)"):
        async with process(listeners=[register]):
            pass
