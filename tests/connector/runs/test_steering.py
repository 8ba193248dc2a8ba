from __future__ import annotations

import asyncio

import pytest
from chat import ENVELOPE, EYES, HOURGLASS

from connector.protocols import MessageAuthor


async def test_a_reply_without_a_mention_is_injected_and_its_reactions_show_its_state(chat):
    thread = await chat.start()
    await thread.inject("@alpha me too", who="ben")
    await thread.run.deliver()
    thread.run.injections.clear()
    reply = await thread.accept("and the tests", who="ben")
    assert [(s.text, s.author) for s in thread.run.injections] == [
        ("and the tests", MessageAuthor(chat.ben.person.id, "Ben", "Etc/UTC"))
    ]
    assert not thread.message(reply).reacted(EYES), "not delivered yet"
    await thread.run.deliver()
    await thread.marked(reply, EYES)
    await thread.contains("⚙️ Alpha: Incorporating your input…")
    await thread.run.answer("ok")
    await thread.shows("ok")


async def test_injections_keep_their_order_while_names_are_looked_up(chat):
    thread = await chat.start()
    for number in range(5):
        await thread.say(f"@alpha message {number}", who="ben" if number % 2 else "chloe")
    await thread.run.injected(*(f"message {number}" for number in range(5)))


async def test_the_same_text_twice_is_two_messages(chat):
    thread = await chat.start()
    for _ in range(2):
        await thread.say("and again")
    await thread.run.injected("and again", "and again")
    assert len({each.id for each in thread.run.injections}) == 2


async def test_a_message_during_set_up_is_injected_as_soon_as_the_loop_accepts_it(chat):
    chat.sessions.hold_setup = asyncio.Event()
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS)
    await thread.accept("and this")
    chat.sessions.hold_setup.set()
    assert (await thread.next_run()).texts == ["and this"]


async def test_a_refused_message_is_reported_with_the_reason_and_the_next_one_may_be_accepted(chat):
    thread = await chat.start()
    thread.run.refuses = True
    refused = await thread.say("one too many <https://a.b|here>")
    await thread.contains("📭 Not accepted: “one too many here (https://a.b)”. It has no words; send it with some.")
    thread.run.refuses = False
    await thread.accept("fits")
    assert thread.run.texts == ["fits"]
    assert not thread.message(refused).reacted(ENVELOPE)


@pytest.mark.parametrize("is_in_flight", [False, True])
async def test_a_message_that_is_refused_after_set_up_loses_its_envelope(chat, is_in_flight):
    chat.sessions.hold_setup = asyncio.Event()
    thread = await chat.say("@alpha look")
    await thread.marked(thread.ts, HOURGLASS)
    mark = chat.hold("reactions.add")
    early = await thread.say("one too many")
    await mark.reached.wait()
    if not is_in_flight:
        mark.set()
        await thread.marked(early, ENVELOPE)
    (run,) = chat.sessions._active.values()
    run.refuses = True
    chat.sessions.hold_setup.set()
    await thread.contains("Not accepted: “one too many”.")
    mark.set()
    await thread.marked(early, ENVELOPE, gone=True)


async def test_messages_wait_while_the_injection_queue_is_full(chat):
    thread = await chat.start()
    thread.run.full = True
    texts = [f"number {n}" for n in range(3)]
    for text in texts:
        await thread.accept(text)
    assert (thread.run.injections, [text for text in thread.texts if "Not accepted" in text]) == ([], [])
    thread.run.full = False
    await thread.run.deliver()
    await thread.run.injected(*texts)


async def test_an_injection_by_a_module_does_not_keep_eyes_from_the_messages(chat):
    thread = await chat.start()
    reply = await thread.inject("and this")
    ids = ["5f0c5d4ee3a84b64a0b2e1a2c0d9f7aa", thread.run.injections[0].id]
    await thread.run.progress("injection:applied", ids=ids, messages=["from a tool", "and this"], count=2)
    await thread.marked(reply, EYES)


async def test_a_message_that_is_delivered_while_its_envelope_is_in_flight_gets_eyes(chat):
    thread = await chat.start_shown()
    mark = chat.hold("reactions.add")
    reply = await thread.inject("also this")
    await thread.run.deliver()
    mark.set()
    await thread.marked(reply, EYES)


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
    reply = await thread.say(posted)
    await thread.run.injected(injected)
    assert thread.run.stops == []
    await thread.marked(reply, ENVELOPE)
    await thread.run.deliver()
    await thread.marked(reply, EYES)


async def test_an_urgent_message_waits_for_no_name_and_takes_the_earlier_messages_along(chat):
    thread = await chat.start_shown()
    lookup = chat.hold("users.info", times=2)
    for name in ("ben", "chloe"):
        await thread.say(f"@alpha from {name}", who=name)
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
    assert thread.run.injections[0].author == MessageAuthor(ana, "Ana", "Etc/UTC")


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
    await thread.accept("@alpha !and this", who="ben")
    chat.sessions.hold_setup.set()
    run = await thread.next_run()
    assert [(s.text, s.author) for s in run.injections] == [("!and this", MessageAuthor(chat.ben.person.id))]


async def test_an_urgent_message_without_a_run_starts_one(chat):
    assert (await chat.start("@alpha !look at this")).run.prompt == "!look at this"
