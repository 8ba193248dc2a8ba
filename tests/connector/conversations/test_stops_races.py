from __future__ import annotations

import asyncio

import pytest

from local_slack import DropsAfterwards
from local_slack.delivery.delivery import Envelope

NOTHING_RUNS = "Nothing is running here."
BOUND_S = 3


async def finished_run(scene) -> str:
    """A thread with a run that is over; the bot knows Ana's name from it."""
    ts = await scene.ana.say("general", "@alpha first")
    await (await scene.sessions.next_run()).answer("first answer")
    await scene.quiet("general", ts)
    return ts


async def stopped(run) -> None:
    async with asyncio.timeout(BOUND_S):
        await run.until(lambda r: bool(r.stops))


async def test_the_word_stop_right_after_the_mention_is_not_lost_while_the_name_is_looked_up(scene, hold):
    scene.sessions.obedient = True
    lookup = hold("users.info")
    ts = await scene.ana.say("general", "@alpha look")
    await scene.ana.say("general", "stop", thread=ts)
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)
    lookup.set()
    await scene.posted("general", ts, "🛑 Stopped by Ana.", BOUND_S)
    assert NOTHING_RUNS not in scene.texts("general", ts)


async def test_a_cross_on_the_mention_is_not_lost_while_the_name_is_looked_up(scene, hold):
    scene.sessions.obedient = True
    lookup = hold("users.info")
    ts = await scene.ana.say("general", "@alpha look")
    await scene.ana.react("general", ts, "x")
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)
    lookup.set()
    await scene.posted("general", ts, "🛑 Stopped by Ana.", BOUND_S)


async def test_a_mention_and_a_stop_that_come_in_one_burst_after_a_gap_start_nothing_that_goes_on(scene):
    scene.sessions.obedient = True
    await finished_run(scene)
    scene.slack.socket_mode.drop()
    ts = await scene.ana.say("general", "@alpha look")
    await scene.ana.say("general", "stop", thread=ts)
    await scene.posted("general", ts, "🛑 Stopped by Ana.", 6)
    assert NOTHING_RUNS not in scene.texts("general", ts)


async def test_a_cross_on_the_mention_stops_though_slack_does_not_answer_the_status_post(scene, hold):
    await finished_run(scene)
    hold("chat.postMessage")
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.ana.react("general", ts, "x")
    await stopped(run)


async def test_a_cross_on_one_status_stops_its_run_though_another_thread_waits_for_its_own_status(scene, hold):
    await finished_run(scene)
    hold("chat.postMessage")
    await scene.ana.say("general", "@alpha one")
    await scene.sessions.next_run()
    two = await scene.ana.say("general", "@alpha two")
    run = await scene.sessions.next_run()
    status = await scene.status("general", two)
    await scene.ana.react("general", status.ts, "x")
    await stopped(run)


@pytest.mark.parametrize("how", ["cross", "word"])
async def test_a_stop_does_not_wait_for_the_name_of_who_asked(scene, hold, how):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    hold("users.info")
    if how == "cross":
        await scene.ben.react("general", ts, "x")
    else:
        await scene.ben.say("general", "stop", thread=ts)
    await stopped(run)


@pytest.mark.parametrize("how", ["cross", "word"])
async def test_a_stop_of_a_run_that_has_ended_does_not_hit_the_next_one(scene, hold, how):
    ts = await scene.ana.say("general", "@alpha look")
    first = await scene.sessions.next_run()
    await scene.status("general", ts)
    lookup = hold("users.info")
    if how == "cross":
        await scene.ben.react("general", ts, "x")
    else:
        await scene.ben.say("general", "stop", thread=ts)
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)
    await first.answer("first answer")
    await scene.quiet("general", ts)
    await scene.ana.say("general", "and now this", thread=ts)
    second = await scene.sessions.next_run()
    lookup.set()
    marker = await scene.ben.say("general", "a steer", thread=ts)
    await scene.reacted("general", marker, "incoming_envelope")
    assert second.stops == []
    await second.answer("second answer")


async def test_a_cross_that_slack_delivers_twice_is_one_stop(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    event = {
        "type": "reaction_added",
        "user": scene.slack.person("ana").id,
        "reaction": "x",
        "item": {"type": "message", "channel": scene.slack.channel("general").id, "ts": ts},
        "event_ts": f"{float(ts) + 1:.6f}",
    }
    for attempt in range(2):
        payload = {"type": "event_callback", "team_id": scene.slack.team_id, "event_id": "Ev1", "event": event}
        again = Envelope("again-1", "events_api", payload, attempt, "timeout" if attempt else "")
        scene.slack.socket_mode.delivery.offer(again)
    await stopped(run)
    marker = await scene.ana.say("general", "a steer", thread=ts)
    await scene.reacted("general", marker, "incoming_envelope")
    assert run.stops == [False], "the same cross again is not a second one"
    await run.answer("", status="cancelled")


async def test_a_stop_while_the_answer_is_posted_keeps_a_waiting_message_from_starting_a_run(scene, hold):
    ts = await finished_run(scene)
    second = await scene.ana.say("general", "second", thread=ts)
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    post = hold("chat.postMessage")
    await run.answer("second answer")
    late = await scene.ana.say("general", "third", thread=ts)
    await scene.reacted("general", late, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)
    post.set()
    await scene.posted("general", ts, "second answer")
    await nothing_starts_after(scene, second)


async def test_a_message_for_another_instance_that_waits_when_its_thread_is_stopped_starts_nothing(scene):
    scene.sessions.obedient = True
    ts = await finished_run(scene)
    second = await scene.ana.say("general", "second", thread=ts)
    await scene.sessions.next_run()
    waiting = await scene.ana.say("general", "beta: and you do that", thread=ts)
    await scene.reacted("general", waiting, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await scene.posted("general", ts, "🛑 Stopped by Ana.")
    await nothing_starts_after(scene, second)


async def nothing_starts_after(scene, start: str) -> None:
    """No run follows by itself on the one that this message began: the next one is what is asked elsewhere."""
    await scene.reacted("general", start, "hourglass_flowing_sand", gone=True)
    await scene.ana.say("random", "@alpha elsewhere")
    assert (await scene.sessions.next_run()).prompt == "elsewhere", "what waited before the stop started a run"


async def test_a_cross_on_a_status_whose_post_is_still_in_doubt_stops_the_run(scene):
    await finished_run(scene)
    scene.slack.faults.next("chat.postMessage", DropsAfterwards())
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    status = await scene.status("general", ts)
    await scene.ana.react("general", status.ts, "x")
    await stopped(run)
    await run.answer("", status="cancelled")
    assert [m.text for m in await scene.quiet("general", ts)] == ["🛑 Stopped by Ana."]


async def test_a_stop_during_set_up_ends_the_run_and_what_was_written_leads_the_next_one(scene):
    scene.sessions.obedient = True
    scene.sessions.hold_setup = asyncio.Event()
    ts = await scene.ana.say("general", "@alpha look")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    early = await scene.ana.say("general", "and this", thread=ts)
    await scene.reacted("general", early, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)
    scene.sessions.hold_setup.set()
    await scene.posted("general", ts, "🛑 Stopped by Ana. 1 message has not been read yet")


async def test_a_cross_on_the_start_of_an_earlier_run_does_nothing_to_a_later_one(scene):
    ts = await finished_run(scene)
    await scene.ana.say("general", "go on", thread=ts)
    run = await scene.sessions.next_run()
    await scene.ana.react("general", ts, "x")
    marker = await scene.ana.say("general", "a steer", thread=ts)
    await scene.reacted("general", marker, "incoming_envelope")
    assert run.stops == []
    await run.answer("ok")


async def test_a_stop_that_is_older_than_the_run_does_nothing(scene):
    root = await finished_run(scene)
    old = {"type": "message", "user": scene.slack.person("ana").id, "text": "stop", "thread_ts": root}
    old |= {"ts": f"{float(root) + 0.000001:.6f}", "channel": scene.slack.channel("general").id}
    await scene.ana.say("general", "go on", thread=root)
    run = await scene.sessions.next_run()
    payload = {"type": "event_callback", "team_id": scene.slack.team_id, "event_id": "Ev1", "event": old}
    scene.slack.socket_mode.delivery.offer(Envelope("late", "events_api", payload, 1, "timeout"))
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)
    await scene.ana.say("general", "and this", thread=root)
    await run.until(lambda r: [s.text for s in r.steers] == ["and this"])
    assert run.stops == []
    await run.read_steers()
    await run.answer("ok")
