"""Both transports lead to the same handling, and acknowledge everything."""

from __future__ import annotations

import socket

import pytest
from structlog.testing import capture_logs

from connector import HttpTransport
from local_slack import LocalSlack, RetrySchedule
from local_slack.delivery.faults import Delayed, Dropped, Duplicated


def http_transport(slack: LocalSlack) -> HttpTransport:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return HttpTransport(slack.signing_secret, "127.0.0.1", free.getsockname()[1])


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
    assert (run.conversation, run.prompt) == (f"{chat.slack.team_id}:{channel}:dm", "hello")


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
    {**MESSAGE, "text": ["hello"]},
    {**MESSAGE, "channel": 5},
    {**MESSAGE, "files": ["F1"]},
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
