"""Every message that people write comes to an end that they can see."""

from __future__ import annotations

import asyncio

import pytest

from connector import RunFailed

ONE_WAITS = "1 message has not been read yet. I will read it with your next message."


async def begun(scene):
    """A run with its hourglass and its status."""
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    return ts, run


async def test_a_refused_message_is_named_with_what_to_do_and_the_next_one_may_fit_again(scene):
    ts, run = await begun(scene)
    run.refuses = True
    refused = await scene.ana.say("general", "one too many <https://a.b|here>", thread=ts)
    text = "📭 Not accepted: “one too many here (https://a.b)”. It has no words; send it with some."
    await scene.posted("general", ts, text)
    run.refuses = False
    taken = await scene.ana.say("general", "fits", thread=ts)
    await scene.reacted("general", taken, "incoming_envelope")
    assert [s.text for s in run.steers] == ["fits"]
    assert not scene.message("general", refused).reacted("incoming_envelope")
    await run.answer("ok")


async def test_what_the_loop_has_no_room_for_waits_until_it_has_read_something(scene):
    ts, run = await begun(scene)
    run.full = True
    waiting = [await scene.ana.say("general", f"number {n}", thread=ts) for n in range(3)]
    await scene.reacted("general", waiting[-1], "incoming_envelope")
    assert (run.steers, [text for text in scene.texts("general", ts) if "Not accepted" in text]) == ([], [])
    run.full = False
    await run.read_steers()
    await run.until(lambda r: [s.text for s in r.steers] == ["number 0", "number 1", "number 2"])
    await run.answer("ok")


async def test_a_mark_of_acceptance_that_is_still_on_its_way_is_taken_back_all_the_same(scene, hold):
    scene.sessions.hold_setup = asyncio.Event()
    ts = await scene.ana.say("general", "@alpha look")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    marking = hold("reactions.add")
    early = await scene.ana.say("general", "one too many", thread=ts)
    await marking.reached.wait()
    (run,) = scene.sessions._active.values()
    run.refuses = True
    scene.sessions.hold_setup.set()
    await scene.posted("general", ts, "Not accepted: “one too many”.")
    marking.set()
    await scene.reacted("general", early, "incoming_envelope")
    await scene.reacted("general", early, "incoming_envelope", gone=True)
    await run.answer("ok")


@pytest.mark.parametrize("status", ["success", "incomplete", "cancelled"])
async def test_a_message_that_the_loop_took_and_did_not_read_begins_the_next_run_however_the_run_ends(scene, status):
    ts, run = await begun(scene)
    await scene.ana.say("general", "and this", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    await run.answer("the answer", status=status)
    assert (await scene.sessions.next_run()).prompt == "and this"


async def test_a_message_that_a_failed_run_did_not_read_begins_the_next_one(scene):
    ts, run = await begun(scene)
    await scene.ana.say("general", "and this", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    await run.fail(RunFailed("The model is away."))
    await scene.posted("general", ts, "⚠️ The model is away.")
    assert (await scene.sessions.next_run()).prompt == "and this"


async def test_a_message_that_a_stopped_run_did_not_read_is_named_and_waits(scene, of_bot):
    ts, run = await begun(scene)
    await scene.ana.say("general", "and this", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("", status="cancelled")
    assert of_bot(await scene.quiet("general", ts)) == [f"🛑 Stopped by Ana. {ONE_WAITS}"]
    await scene.ana.say("general", "go on", thread=ts)
    run = await scene.sessions.next_run()
    await run.until(lambda r: len(r.steers) == 1)
    assert [run.prompt, run.steers[0].text] == ["and this", "go on"]


async def test_a_message_that_waited_is_not_lost_when_the_run_that_it_leads_is_stopped_in_its_set_up(scene):
    ts, run = await begun(scene)
    run.listening = False
    waiting = await scene.ana.say("general", "waits", thread=ts)
    await scene.reacted("general", waiting, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("", status="cancelled")
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)

    scene.sessions.obedient, scene.sessions.hold_setup = True, asyncio.Event()
    go_on = await scene.ana.say("general", "go on", thread=ts)
    await scene.reacted("general", go_on, "incoming_envelope")
    await scene.slack.until(lambda _: not scene.sessions.idle)
    await scene.ana.react("general", waiting, "x")
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)
    scene.sessions.hold_setup.set()
    await scene.posted("general", ts, "🛑 Stopped by Ana. 2 messages have not been read yet")
    assert not scene.message("general", waiting).reacted("eyes")
    await scene.reacted("general", waiting, "hourglass_flowing_sand", gone=True)
    await scene.ana.say("general", "now", thread=ts)
    run = await scene.sessions.next_run()
    await run.until(lambda r: len(r.steers) == 2)
    assert [run.prompt, *(s.text for s in run.steers)] == ["waits", "go on", "now"]
    await scene.reacted("general", waiting, "eyes")
    await run.answer("ok")
