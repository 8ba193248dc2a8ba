from __future__ import annotations


async def test_a_cross_on_the_status_stops_the_run_and_the_thread_says_who_did_it(scene, of_bot):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    status = await scene.status("general", ts)
    for steer in ("and this", "and that"):
        await scene.ana.say("general", steer, thread=ts)
    await run.until(lambda r: len(r.steers) == 2)
    await scene.ben.react("general", status.ts, "x")
    await run.until(lambda r: bool(r.stops))
    assert run.stops == [False], "graceful first"
    await run.answer("I had only begun", status="cancelled")
    assert of_bot(await scene.quiet("general", ts)) == [
        "I had only begun …",
        "🛑 Stopped by Ben. 2 messages have not been read yet. I will read them with your next message.",
    ]


async def test_a_cross_on_the_starting_message_stops_too_and_a_second_one_stops_at_once(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.ana.react("general", ts, "x")
    await run.until(lambda r: r.stops == [False])
    await scene.ben.react("general", ts, "x")
    await run.until(lambda r: r.stops == [False, True])
    await run.answer("", status="cancelled")
    await scene.posted("general", ts, "🛑 Stopped by Ana.")


async def test_the_word_stop_stops_and_is_no_steer(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.ana.say("general", "Stop!", thread=ts)
    await run.until(lambda r: bool(r.stops))
    assert run.steers == []
    await run.answer("", status="cancelled")
    await scene.posted("general", ts, "🛑 Stopped by Ana.")


async def test_a_sentence_with_stop_in_it_is_a_steer(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.ana.say("general", "stop at the third chapter", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    assert run.stops == []
    await run.answer("ok")


async def test_stop_without_a_run_says_that_nothing_runs(scene):
    ts = await scene.ana.say("general", "@alpha look")
    await (await scene.sessions.next_run()).answer("done")
    await scene.quiet("general", ts)
    await scene.ana.say("general", "stop", thread=ts)
    await scene.posted("general", ts, "Nothing is running here.")
    assert scene.sessions.idle


async def test_other_reactions_and_crosses_elsewhere_stop_nothing(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    status = await scene.status("general", ts)
    await scene.ana.react("general", status.ts, "eyes")
    other = await scene.ana.say("general", "nobody's business")
    await scene.ana.react("general", other, "x")
    steer = await scene.ana.say("general", "last", thread=ts)
    await scene.reacted("general", steer, "incoming_envelope")
    assert run.stops == []
    await run.answer("ok")
