"""Stop has many doors and one function behind them."""

from __future__ import annotations

from itertools import count, product

import pytest

from connector.events import clicked_stop_of, session_stop_of
from local_slack.delivery.delivery import Envelope

_numbers = count(1)


async def by_word(scene, root: str, status) -> None:
    await scene.ben.say("general", "stop", thread=root)


async def by_cross_on_the_status(scene, root: str, status) -> None:
    await scene.ben.react("general", status.ts, "x")


async def by_cross_on_the_start(scene, root: str, status) -> None:
    await scene.ben.react("general", root, "x")


async def by_slacks_own_button(scene, root: str, status) -> None:
    await scene.ben.stop_session("general", root)


async def by_our_button(scene, root: str, status) -> None:
    await scene.ben.click("general", status.ts, "stop")


DOORS = [by_word, by_cross_on_the_status, by_cross_on_the_start, by_slacks_own_button, by_our_button]


def clicked(scene, who: str, root: str, status, *, at: float | None = None, run: str | None = None) -> dict:
    """What Slack sends when the button of a status is clicked."""
    channel, number = scene.slack.channel("general").id, next(_numbers)
    return {
        "type": "block_actions",
        "team": {"id": scene.slack.team_id, "domain": "playground"},
        "user": {"id": scene.slack.person(who).id, "team_id": scene.slack.team_id},
        "api_app_id": "A1",
        "container": {"type": "message", "message_ts": status.ts, "channel_id": channel, "thread_ts": root},
        "channel": {"id": channel, "name": "general"},
        "message": {"type": "message", "user": scene.slack.bot_user_id, "ts": status.ts, "thread_ts": root},
        "actions": [
            {
                "action_id": "stop",
                "block_id": "stop",
                "type": "button",
                "value": run or run_of(status),
                "action_ts": f"{at or float(status.ts) + 60 + number:.6f}",
            }
        ],
    }


def run_of(status) -> str:
    key: str = status.body.metadata["event_payload"]["key"]
    return key.partition(":status")[0]


def click(scene, who: str, root: str, status, **more) -> None:
    deliver(scene, clicked(scene, who, root, status, **more))


def deliver(scene, payload: dict) -> None:
    envelope = Envelope(f"click-{next(_numbers)}", "interactive", payload)
    scene.slack.socket_mode.delivery.offer(envelope)


async def at_work(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    return ts, run, await scene.status("general", ts)


async def all_taken(scene) -> None:
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_each_door_stops_and_the_thread_says_who_did_it(scene, door):
    ts, run, status = await at_work(scene)
    await door(scene, ts, status)
    await run.until(lambda r: r.stops == [False])
    await run.answer("", status="cancelled")
    await scene.posted("general", ts, "🛑 Stopped by Ben.")


@pytest.mark.parametrize(
    ("first", "second"),
    [(DOORS[n], DOORS[(n + 1) % len(DOORS)]) for n in range(len(DOORS))],
    ids=lambda door: door.__name__,
)
async def test_a_second_stop_is_immediate_whichever_doors_they_took(scene, first, second):
    ts, run, status = await at_work(scene)
    await first(scene, ts, status)
    await run.until(lambda r: r.stops == [False])
    await second(scene, ts, status)
    await run.until(lambda r: r.stops == [False, True])
    await run.answer("", status="cancelled")
    await scene.posted("general", ts, "🛑 Stopped by Ben.")


async def test_a_click_that_slack_tells_of_twice_is_one_stop(scene):
    ts, run, status = await at_work(scene)
    payload = clicked(scene, "ben", ts, status)
    deliver(scene, payload)
    deliver(scene, payload)
    await run.until(lambda r: r.stops == [False])
    await all_taken(scene)
    steer = await scene.ana.say("general", "a steer", thread=ts)
    await scene.reacted("general", steer, "incoming_envelope")
    assert run.stops == [False]
    await run.answer("", status="cancelled")


async def test_a_click_on_the_status_of_another_run_stops_nothing(scene):
    ts, run, status = await at_work(scene)
    click(scene, "ben", ts, status, run="a-run-of-yesterday")
    await untouched(scene, ts, run)


async def test_a_click_that_is_older_than_the_run_stops_nothing(scene):
    ts, run, status = await at_work(scene)
    click(scene, "ben", ts, status, at=float(ts) - 60)
    await untouched(scene, ts, run)


async def test_a_native_stop_elsewhere_stops_nothing(scene):
    ts, run, _status = await at_work(scene)
    other = await scene.ana.say("general", "another thread")
    await scene.ana.stop_session("general", other)
    await untouched(scene, ts, run)


async def untouched(scene, ts: str, run) -> None:
    await all_taken(scene)
    steer = await scene.ana.say("general", "a steer", thread=ts)
    await scene.reacted("general", steer, "incoming_envelope")
    assert run.stops == []
    await run.read_steers()
    await run.answer("ok")


@pytest.mark.parametrize("has_replies", [False, True])
async def test_in_a_direct_message_a_click_stops_the_run_of_the_channel(scene, has_replies):
    dm = await scene.ana.open_dm("alpha")
    await scene.ana.say(dm, "hello")
    run = await scene.sessions.next_run()
    status = await scene.slack.until(
        lambda ws: next((m for m in ws.messages(dm) if m.by_bot and m.text.startswith("⚙️")), None)
    )
    payload = clicked(scene, "ana", "", status)
    payload["channel"] = {"id": dm, "name": "directmessage"}
    payload["container"] = {"type": "message", "message_ts": status.ts, "channel_id": dm}
    if has_replies:
        payload["message"]["thread_ts"] = status.ts
    else:
        del payload["message"]["thread_ts"]
    deliver(scene, payload)
    await run.until(lambda r: r.stops == [False])
    await run.answer("", status="cancelled")


@pytest.mark.parametrize("missing", ["user", "channel", "event_ts"])
def test_a_native_stop_that_does_not_say_enough_is_none(missing):
    event = {"type": "agent_session_stopped", "user": "U1", "channel": "C1", "thread_ts": "1.0", "event_ts": "2.0"}
    assert session_stop_of(event, "T1") is not None
    assert session_stop_of({key: value for key, value in event.items() if key != missing}, "T1") is None


@pytest.mark.parametrize(
    ("part", "value"), [*product(["user", "channel", "container", "message", "actions"], [None, {}])]
)
def test_a_click_that_does_not_say_enough_is_none_and_one_without_a_message_is_found_by_its_container(part, value):
    whole = {
        "user": {"id": "U1"},
        "channel": {"id": "C1"},
        "container": {"message_ts": "2.0", "channel_id": "C1", "thread_ts": "1.0"},
        "message": {"ts": "2.0", "thread_ts": "1.0"},
        "actions": [{"action_id": "stop", "value": "run", "action_ts": "3.0"}],
    }
    found = clicked_stop_of({**whole, part: value}, "T1")
    if part in ("user", "actions"):
        assert found is None
    else:
        assert found is not None
        assert found[0].conversation_id == "T1:C1:1.0"
