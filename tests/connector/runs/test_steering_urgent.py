"""A message that begins with `!`."""

from __future__ import annotations

import asyncio

import pytest
from chat import ENVELOPE, EYES, HOURGLASS

from connector.protocols import MessageAuthor


@pytest.mark.parametrize(
    ("posted", "injected"),
    [
        ("!only the roadmap", "!only the roadmap"),
        ("@alpha !only the roadmap", "!only the roadmap"),
        ("@alpha alpha: !only the roadmap", "!only the roadmap"),
        ("alpha: ! only\nthe roadmap", "! only\nthe roadmap"),
        ("!", "!"),
        ("!!stop at chapter three", "!!stop at chapter three"),
    ],
)
async def test_an_urgent_message_is_injected_with_its_exclamation_mark(chat, posted, injected):
    thread = await chat.start()
    steer = await thread.say(posted)
    await thread.run.injected(injected)
    assert thread.run.stops == []
    await thread.marked(steer, ENVELOPE)
    await thread.run.deliver()
    await thread.marked(steer, EYES)


async def test_an_urgent_message_waits_for_no_name_and_takes_the_earlier_messages_along(chat):
    thread = await chat.start_shown()
    lookup = chat.hold("users.info", times=2)
    for name in ("ben", "chloe"):
        await thread.say(f"from {name}", who=name)
    await thread.say("@alpha !ask @ben and @chloe")
    async with asyncio.timeout(3):
        await thread.run.until(lambda r: len(r.injections) == 3)
    assert not lookup.is_set()
    assert thread.run.texts[:2] == ["from ben", "from chloe"]
    assert thread.run.texts[2].startswith("!ask @")


async def test_an_urgent_message_is_injected_before_a_plain_one_in_another_thread_that_waits_for_names(chat):
    plain, urgent = await chat.start_shown(), await chat.start_shown()
    chat.hold("users.info", times=3)
    await plain.say("@alpha ask @chloe", who="ben")
    await urgent.say("!now")
    for thread in (plain, urgent):
        await thread.run.until(lambda r: len(r.injections) == 1)
    assert chat.sessions.injected[0] == "!now"


async def test_names_are_looked_up_concurrently(chat):
    thread = await chat.start_shown()
    lookups = [chat.hold("users.info") for _ in range(2)]
    await thread.say("@alpha ask @ben and @chloe")
    for lookup in lookups:
        await lookup.reached.wait()
    for lookup in lookups:
        lookup.set()
    ana, ben, chloe = (chat.slack.person(name).id for name in ("ana", "ben", "chloe"))
    await thread.run.injected(f"ask @Ben ({ben}) and @Chloe ({chloe})")
    assert thread.run.injections[0].author == MessageAuthor(ana, "Ana")


async def test_an_urgent_message_does_not_wait_for_one_to_another_instance(chat):
    thread = await chat.start()
    await thread.accept("beta: you do the rest")
    await thread.say("alpha: !only the roadmap")
    await thread.run.injected("!only the roadmap")
    await thread.run.answer("ok")
    run = await thread.next_run()
    assert (run.instance, run.prompt) == ("beta", "you do the rest")


async def test_an_urgent_message_during_set_up_is_injected_without_a_name(chat):
    await (await chat.start_shown()).run.answer("so that Ana's name is known")
    chat.sessions.hold_setup = asyncio.Event()
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS)
    chat.hold("users.info")
    await thread.accept("!and this", who="ben")
    chat.sessions.hold_setup.set()
    run = await thread.next_run()
    assert [(s.text, s.author) for s in run.injections] == [("!and this", MessageAuthor(chat.ben.person.id))]


async def test_an_urgent_message_without_a_run_starts_one(chat):
    assert (await chat.start("@alpha !look at this")).run.prompt == "!look at this"
