"""What people edit and delete: in time it is as if it had never been otherwise, later the model is told."""

from __future__ import annotations

import asyncio

CORRECTED = "(A correction of my earlier message, which reads now:)"
TAKEN_BACK = "(I have taken back my earlier message:)"


async def begun(scene, text="@alpha look"):
    ts = await scene.ana.say("general", text)
    return ts, await scene.sessions.next_run()


async def steered(scene, ts, run, text: str = "and this") -> str:
    steer = await scene.ana.say("general", text, thread=ts)
    await run.until(lambda r: [s.text for s in r.steers] == [text])
    return steer


async def all_taken(scene) -> None:
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)


async def test_a_message_that_the_loop_has_not_read_has_its_new_text(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await scene.ana.edit("general", steer, "no, that")
    await run.until(lambda r: [s.text for s in r.steers] == ["no, that"])
    await run.answer("ok")


async def test_a_message_that_the_loop_was_not_given_yet_has_its_new_text(scene):
    scene.sessions.hold_setup = asyncio.Event()
    ts = await scene.ana.say("general", "@alpha look")
    steer = await scene.ana.say("general", "and this", thread=ts)
    await scene.reacted("general", steer, "incoming_envelope")
    await scene.ana.edit("general", steer, "no, that")
    await all_taken(scene)
    scene.sessions.hold_setup.set()
    run = await scene.sessions.next_run()
    await run.until(lambda r: [s.text for s in r.steers] == ["no, that"])
    await run.answer("ok")


async def test_the_message_that_a_run_begins_with_has_its_new_text_until_it_has_begun(scene, hold):
    lookup = hold("users.info")
    ts = await scene.ana.say("general", "@alpha ask @chloe")
    await lookup.reached.wait()
    await scene.ana.edit("general", ts, "@alpha ask me")
    await all_taken(scene)
    lookup.set()
    assert (await scene.sessions.next_run()).prompt == "ask me"


async def test_a_message_that_the_model_has_is_corrected(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.edit("general", steer, "no, that")
    await run.until(lambda r: [s.text for s in r.steers[1:]] == [f"{CORRECTED} no, that"])
    await scene.ana.edit("general", ts, "@alpha look closely")
    await run.until(lambda r: [s.text for s in r.steers[2:]] == [f"{CORRECTED} look closely"])
    await run.read_steers()
    await run.answer("ok")
    await scene.quiet("general", ts)
    assert scene.sessions.idle


async def test_a_correction_while_nothing_runs_goes_with_the_next_message(scene):
    ts, run = await begun(scene)
    await run.answer("ok")
    await scene.quiet("general", ts)
    await scene.ana.edit("general", ts, "@alpha look closely")
    await all_taken(scene)
    assert scene.sessions.idle
    await scene.ana.say("general", "go on", thread=ts)
    run = await scene.sessions.next_run()
    await run.until(lambda r: len(r.steers) == 1)
    assert [run.prompt, run.steers[0].text] == [f"{CORRECTED} look closely", "go on"]


async def test_links_that_slack_unfurls_are_no_edit(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.edit("general", steer, "and this")
    await steered_after(scene, ts, run, "the next one")
    await run.answer("ok")


async def steered_after(scene, ts, run, text: str) -> None:
    """Nothing else came before this."""
    await all_taken(scene)
    before = len(run.steers)
    await scene.ana.say("general", text, thread=ts)
    await run.until(lambda r: len(r.steers) > before)
    assert [s.text for s in run.steers[before:]] == [text]


async def test_a_message_that_the_loop_has_not_read_is_taken_back(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await scene.ana.delete("general", steer)
    await run.until(lambda r: r.steers == [])
    await run.answer("ok")
    await scene.quiet("general", ts)
    assert scene.sessions.idle


async def test_a_message_that_waits_after_a_stop_is_taken_back(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("", status="cancelled")
    await scene.quiet("general", ts)
    await scene.ana.delete("general", steer)
    await all_taken(scene)
    await scene.ana.say("general", "go on", thread=ts)
    run = await scene.sessions.next_run()
    assert (run.prompt, run.steers) == ("go on", [])
    await run.answer("ok")


async def test_the_model_is_told_of_a_message_that_was_taken_back_when_it_had_it(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.delete("general", steer)
    await run.until(lambda r: [s.text for s in r.steers[1:]] == [f"{TAKEN_BACK} and this"])
    await run.read_steers()
    await run.answer("ok")


async def test_whoever_deletes_the_message_that_a_run_began_with_stops_it(scene):
    ts, run = await begun(scene)
    await scene.ana.say("general", "so that the thread stays", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    await scene.ana.delete("general", ts)
    await run.until(lambda r: r.stops == [False])
    await run.answer("", status="cancelled")
    await scene.slack.until(lambda _: scene.sessions.idle)


async def test_what_was_never_for_an_agent_may_change_as_it_likes(scene):
    ts, run = await begun(scene)
    other = await scene.ana.say("general", "@ben what do you think?", thread=ts)
    await scene.ana.edit("general", other, "what do you all think?")
    await scene.ana.delete("general", other)
    await steered_after(scene, ts, run, "the next one")
    await run.answer("ok")
