"""What comes in by either door leads to the same, and all of it is acknowledged."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from itertools import count

import pytest
from fake_sessions import FakeSessionManager
from structlog.testing import capture_logs

from connector import ConnectionRefused, HttpTransport, Instance, Persona, SlackCredentials, SocketTransport, connected
from local_slack import LocalSlack, RetrySchedule
from local_slack.delivery.delivery import Envelope
from local_slack.delivery.delivery_faults import Late, Lost, Twice

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
_numbers = count(1)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def connected_by(name: str, slack: LocalSlack, sessions: FakeSessionManager, runs):
    """The connector behind one of the two doors."""
    port = free_port()
    door = SocketTransport(slack.app_token)
    if name == "http":
        door = HttpTransport(slack.signing_secret, "127.0.0.1", port)
    access = SlackCredentials(slack.bot_token, slack.api_url, door)
    async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1):
        if name == "http":
            await slack.deliver_to(f"http://127.0.0.1:{port}/slack/events")
        await slack.until(lambda ws: ws.bot_online)
        yield


@pytest.fixture(params=["socket", "http"])
async def scene(request, runs, scene_of):
    sessions = FakeSessionManager()
    async with (
        LocalSlack(limits=None, retries=RetrySchedule(0.3, (0, 0.05, 0.05))) as slack,
        connected_by(request.param, slack, sessions, runs),
    ):
        yield scene_of(slack, sessions)


def deliver(scene, payload: dict, kind: str = "events_api") -> str:
    envelope = Envelope(f"test-{next(_numbers)}", kind, payload)
    scene.slack.socket_mode.delivery.offer(envelope)
    return envelope.id


async def acknowledged(scene, envelope: str) -> bool:
    await all_taken(scene)
    return any(entry["what"] == "acked" and entry["envelope"] == envelope for entry in scene.slack.record)


def told(scene, event: object, **more: object) -> dict:
    team = scene.slack.team_id
    return {"type": "event_callback", "team_id": team, "event_id": f"Ev{next(_numbers)}", "event": event, **more}


async def all_taken(scene) -> None:
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding, 2.5)


async def test_a_mention_is_answered_and_steered_and_stopped_by_this_door(scene):
    scene.sessions.obedient = True
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.ana.say("general", "and that", thread=ts)
    await run.until(lambda r: [steer.text for steer in r.steers] == ["and that"])
    await run.read_steers()
    await scene.ana.stop_session("general", ts)
    await scene.posted("general", ts, "🛑 Stopped by Ana.")
    await all_taken(scene)
    assert scene.sessions.prompts == ["look"]


@pytest.mark.parametrize("fault", [Twice(), Late(), Lost()])
async def test_events_that_come_twice_or_late_or_at_the_second_try_are_one_message(scene, fault):
    scene.slack.deliveries.next(fault)
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    scene.slack.deliveries.next(fault)
    await scene.ana.say("general", "one", thread=ts)
    await scene.ana.say("general", "two", thread=ts)
    await run.until(lambda r: len(r.steers) == 2)
    await all_taken(scene)
    assert sorted(steer.text for steer in run.steers) == ["one", "two"]
    assert scene.sessions.prompts == ["look"]


@pytest.mark.parametrize(
    "kinds", [["message"], ["app_mention"], ["message", "app_mention"], ["app_mention", "message"]]
)
async def test_a_mention_is_one_message_whichever_of_its_two_events_arrive(scene, kinds):
    text, ts = f"<@{scene.slack.bot_user_id}> look", "1700000000.000100"
    place = {"ts": ts, "event_ts": ts, "channel": scene.slack.channel("general").id}
    for kind in kinds:
        deliver(scene, told(scene, {"type": kind, "user": scene.slack.person("ana").id, "text": text, **place}))
    run = await scene.sessions.next_run()
    await all_taken(scene)
    assert scene.sessions.prompts == ["look"]
    await run.answer("ok")


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "event_callback", "event": {"type": "app_home_opened", "user": "U1", "tab": "messages"}},
        {"type": "event_callback", "event": {"type": "a_type_of_tomorrow"}},
        {"type": "event_callback", "event": {"type": "message"}},
        {"type": "event_callback", "event": {"type": "message", "subtype": "message_changed"}},
        {"type": "event_callback", "event": {"type": "message", "subtype": "message_deleted", "channel": "C1"}},
        {"type": "event_callback", "event": {"type": "reaction_added", "item": {"type": "file"}}},
        {"type": "event_callback", "event": {"type": "reaction_added"}},
        {"type": "event_callback", "event": {"type": "agent_session_stopped"}},
        {"type": "event_callback", "event": {}},
        {"type": "event_callback", "event": []},
        {"type": "event_callback"},
        {"type": "block_actions", "actions": []},
        {"type": "block_actions"},
        {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"action_id": "feedback", "value": "1"}]},
        {"type": "view_submission", "user": {"id": "U1"}, "view": {"callback_id": "x"}},
        {"type": "view_closed", "user": {"id": "U1"}, "view": {"callback_id": "x"}},
        {"type": "message_action", "callback_id": "x", "user": {"id": "U1"}},
        {"type": "shortcut", "callback_id": "x", "user": {"id": "U1"}},
        {"type": "block_suggestion", "action_id": "x", "user": {"id": "U1"}},
        {"type": "of tomorrow"},
        {"type": 7},
        {},
    ],
)
async def test_what_means_nothing_to_us_is_acknowledged(scene, payload):
    kind = "events_api" if payload.get("type") == "event_callback" else "interactive"
    assert await acknowledged(scene, deliver(scene, payload, kind))


async def test_a_command_is_acknowledged(scene):
    command = {"command": "/agent", "text": "", "user_id": "U1", "team_id": scene.slack.team_id}
    assert await acknowledged(scene, deliver(scene, command, "interactive"))


async def test_what_is_of_another_workspace_is_acknowledged_and_ignored(scene):
    event = {"type": "message", "user": "U1", "text": "hello", "ts": "1700000000.000100", "channel": "D1"}
    with capture_logs() as logs:
        deliver(scene, told(scene, {**event, "channel_type": "im"}, team_id="T0OTHER"))
        await all_taken(scene)
    assert [log["teams"] for log in logs if log["event"] == "slack.other_team"] == [["T0OTHER"]]
    assert scene.sessions.idle


async def test_what_others_do_in_a_channel_that_they_share_with_us_is_ours(scene):
    event = {"type": "message", "user": scene.slack.person("ana").id, "text": "hello", "ts": "1700000000.000100"}
    channel = await scene.slack.as_person("ana").open_dm("alpha")
    event |= {"channel": channel, "channel_type": "im"}
    with capture_logs() as logs:
        deliver(scene, told(scene, event, team_id="T0OTHER", context_team_id=scene.slack.team_id))
        assert (await scene.sessions.next_run()).prompt == "hello"
    begun = [log["conversation"] for log in logs if log["event"] == "run.started"]
    assert begun == [f"{scene.slack.team_id}:{channel}:dm"]


async def test_that_slack_sends_no_more_events_is_in_the_log(scene):
    with capture_logs() as logs:
        scene.slack.notify_rate_limited()
        await all_taken(scene)
    assert [log["team"] for log in logs if log["event"] == "slack.events_limited"] == [scene.slack.team_id]


async def test_over_http_no_app_token_is_tried_and_no_socket_opened(runs):
    async with LocalSlack() as slack:
        slack.faults.next("apps.connections.open", "never asked")  # type: ignore[arg-type]
        access = SlackCredentials(slack.bot_token, slack.api_url, HttpTransport("secret", "127.0.0.1", free_port()))
        async with connected(access, [ALPHA], FakeSessionManager(), runs):
            pass
        assert slack.socket_mode.opened == 0
        assert slack.faults.pending("apps.connections.open") == 1


async def test_a_port_that_is_taken_is_one_clear_sentence(slack, runs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        door = HttpTransport("secret", "127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConnectionRefused, match="another program uses it"):
            async with connected(
                SlackCredentials(slack.bot_token, slack.api_url, door), [ALPHA], FakeSessionManager(), runs
            ):
                pass


@pytest.mark.parametrize("door", ["socket", "http"])
async def test_replies_to_others_are_acknowledged_whatever_slack_allows_and_hold_no_mention_up(runs, scene_of, door):
    sessions = FakeSessionManager()
    async with LocalSlack() as slack:
        scene = scene_of(slack, sessions)
        roots = [await scene.ana.say("random", "nothing for a machine") for _ in range(60)]
        slack.socket_mode.delivery.close()  # the service never sees these events
        async with connected_by(door, slack, sessions, runs):
            for root in roots:
                await scene.ben.say("random", "indeed", thread=root)
            await scene.ana.say("general", "@alpha look")
            run = await sessions.next_run()
            await all_taken(scene)
            assert [entry for entry in slack.record if entry["what"] == "not_acked"] == []
            assert sum(entry.get("method") == "conversations.replies" for entry in slack.record) <= 10
            await run.answer("ok")
