from __future__ import annotations

import asyncio

import pytest

from connector.protocols import MessageAuthor

BOUND_S = 3


async def begun(scene):
    """A run whose people's names Slack has not been asked for."""
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    return ts, run


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("!only the roadmap", "!only the roadmap"),
        ("@alpha !only the roadmap", "!only the roadmap"),
        ("@alpha alpha: !only the roadmap", "!only the roadmap"),
        ("alpha: ! only\nthe roadmap", "! only\nthe roadmap"),
        ("!", "!"),
        ("!!stop at chapter three", "!!stop at chapter three"),
    ],
)
async def test_an_urgent_message_goes_in_as_it_was_written(scene, written, read):
    ts, run = await begun(scene)
    steer = await scene.ana.say("general", written, thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    assert run.steers[0].text == read
    assert run.stops == []
    await scene.reacted("general", steer, "incoming_envelope")
    await run.read_steers()
    await scene.reacted("general", steer, "eyes")
    await run.answer("ok")


async def test_an_urgent_message_waits_for_no_name_and_takes_along_what_stands_before_it(scene, hold):
    ts, run = await begun(scene)
    lookups = [hold("users.info") for _ in range(2)]
    for name in ("ben", "chloe"):
        await scene.slack.as_person(name).say("general", f"from {name}", thread=ts)
    await scene.ana.say("general", "@alpha !ask @ben and @chloe", thread=ts)
    async with asyncio.timeout(BOUND_S):
        await run.until(lambda r: len(r.steers) == 3)
    assert not any(lookup.is_set() for lookup in lookups), "nobody has told a name yet"
    assert [s.text for s in run.steers][:2] == ["from ben", "from chloe"]
    assert run.steers[2].text.startswith("!ask @")
    await run.answer("ok")


async def test_an_urgent_message_is_in_before_a_plain_one_elsewhere_that_waits_for_its_names(scene, hold):
    (plain_ts, plain), (urgent_ts, urgent) = await begun(scene), await begun(scene)
    for _ in range(3):
        hold("users.info")
    await scene.ben.say("general", "@alpha ask @chloe", thread=plain_ts)
    await scene.ana.say("general", "!now", thread=urgent_ts)
    for run in (plain, urgent):
        await run.until(lambda r: len(r.steers) == 1)
        await run.answer("ok")
    assert scene.sessions.injected[0] == "!now"


async def test_names_are_asked_for_all_at_once(scene, hold):
    ts, run = await begun(scene)
    lookups = [hold("users.info") for _ in range(2)]
    await scene.ana.say("general", "@alpha ask @ben and @chloe", thread=ts)
    for lookup in lookups:
        await lookup.reached.wait()
    for lookup in lookups:
        lookup.set()
    await run.until(lambda r: len(r.steers) == 1)
    ana, ben, chloe = (scene.slack.person(name).id for name in ("ana", "ben", "chloe"))
    assert run.steers[0].text == f"ask @Ben ({ben}) and @Chloe ({chloe})"
    assert run.steers[0].author == MessageAuthor(ana, "Ana")
    await run.answer("ok")


async def test_a_message_for_another_instance_does_not_keep_an_urgent_one_from_the_run(scene):
    ts, run = await begun(scene)
    other = await scene.ana.say("general", "beta: you do the rest", thread=ts)
    await scene.reacted("general", other, "incoming_envelope")
    await scene.ana.say("general", "alpha: !only the roadmap", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    assert run.steers[0].text == "!only the roadmap"
    await run.answer("ok")
    beta = await scene.sessions.next_run()
    assert (beta.instance, beta.prompt) == ("beta", "you do the rest")
    await beta.answer("ok")


async def test_an_urgent_message_during_set_up_goes_in_as_soon_as_the_loop_listens(scene, hold):
    _, known = await begun(scene)
    await known.answer("so that Ana's name is known")
    scene.sessions.hold_setup = asyncio.Event()
    ts = await scene.ana.say("general", "@alpha look")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    hold("users.info")
    early = await scene.ben.say("general", "!and this", thread=ts)
    await scene.reacted("general", early, "incoming_envelope")
    scene.sessions.hold_setup.set()
    run = await scene.sessions.next_run()
    assert [(s.text, s.author) for s in run.steers] == [("!and this", MessageAuthor(scene.ben.person.id))]
    await run.answer("ok")


@pytest.mark.parametrize("word", ["!stop", "! Stop!", "alpha: !halt", "@alpha !cancel."])
async def test_an_exclamation_mark_before_the_word_stop_is_a_stop_and_no_steer(scene, word):
    ts, run = await begun(scene)
    await scene.ana.say("general", word, thread=ts)
    await run.until(lambda r: bool(r.stops or r.steers))
    assert (run.stops, run.steers) == ([False], [])
    await run.answer("", status="cancelled")
    await scene.posted("general", ts, "🛑 Stopped by Ana.")


async def test_an_urgent_message_without_a_run_starts_one(scene):
    await scene.ana.say("general", "@alpha !look at this")
    run = await scene.sessions.next_run()
    assert run.prompt == "!look at this"
    await run.answer("ok")
