"""Runs at once are bounded: the others wait in line, show their place, and begin in order."""

from __future__ import annotations

import pytest
from successors import texts

from connector import RunLimits
from local_slack import Breaks

TWO = RunLimits(runs_per_person=2)
HOURGLASS, ENVELOPE = "hourglass_flowing_sand", "incoming_envelope"


@pytest.fixture
async def busy(slack, sessions, process, ana):
    """Ana has two runs at work, which is all that she may have."""
    async with process(limits=TWO):
        roots = [await ana.say("general", f"@alpha task {number}") for number in (1, 2)]
        yield roots, [await sessions.next_run() for _ in roots]


async def waits(slack, root: str, place: int) -> None:
    line = f"⏳ Waiting, position {place} in the queue: 2 runs of yours are active."
    await slack.until(lambda _: texts(slack, root) == [line])


async def test_the_third_run_of_a_person_waits_and_says_so_with_its_place(slack, sessions, busy, ana):
    third, fourth = [await ana.say("general", f"@alpha task {number}") for number in (3, 4)]
    await waits(slack, third, 1)
    await waits(slack, fourth, 2)
    await slack.until(lambda ws: ws.message("general", third).reacted(HOURGLASS))
    assert sessions.prompts == ["task 1", "task 2"]


async def test_runs_that_wait_begin_in_order_as_others_end_and_move_up(slack, sessions, busy, ana):
    third, fourth = [await ana.say("general", f"@alpha task {number}") for number in (3, 4)]
    await waits(slack, fourth, 2)
    await busy[1][1].answer("done")
    run = await sessions.next_run()
    assert run.prompt == "task 3"
    await waits(slack, fourth, 1)
    await run.answer("the answer")
    await slack.until(lambda _: texts(slack, third) == ["the answer"])
    assert (await sessions.next_run()).prompt == "task 4"


async def test_another_person_is_served_while_one_waits(slack, sessions, busy, ana):
    waiting = [await ana.say("general", f"@alpha more {number}") for number in range(20)]
    await waits(slack, waiting[0], 1)
    root = await slack.as_person("ben").say("general", "@alpha mine")
    run = await sessions.next_run()
    assert run.prompt == "mine"
    await run.answer("yours")
    await slack.until(lambda _: texts(slack, root) == ["yours"])


async def test_a_channel_and_the_process_have_bounds_too(slack, sessions, process, ana):
    ben = slack.as_person("ben")
    async with process(limits=RunLimits(runs=2, runs_per_channel=1)):
        await ana.say("general", "@alpha one")
        await sessions.next_run()
        here = await ben.say("general", "@alpha two")
        line = "⏳ Waiting, position 1 in the queue: 1 run in this channel is active."
        await slack.until(lambda _: texts(slack, here) == [line])
        await ben.say("random", "@alpha three")
        assert (await sessions.next_run()).prompt == "three"
        await ana.dm("alpha", "four")
        channel = await ana.open_dm("alpha")
        total = "⏳ Waiting, position 2 in the queue: 2 runs are active."
        await slack.until(lambda ws: any(m.text == total for m in ws.messages(channel)))


@pytest.mark.parametrize("parked", [False, True], ids=["shown", "parked"])
async def test_a_stop_of_a_run_that_waits_is_acted_on_at_once(slack, sessions, busy, ana, parked):
    for number in range(6 if parked else 0):
        await ana.say("general", f"@alpha before {number}")
    root = await ana.say("general", "@alpha not this")
    await shown_or_parked(slack, root, parked)
    await ana.react("general", root, "x")
    await slack.until(lambda _: texts(slack, root) == ["🛑 Stopped by Ana."])
    await slack.until(lambda ws: not any(ws.message("general", root).reacted(mark) for mark in (HOURGLASS, ENVELOPE)))
    for run in busy[1]:
        await run.answer("done")
    assert "not this" not in sessions.prompts


async def test_the_word_stop_stops_a_run_that_waits(slack, sessions, busy, ana):
    root = await ana.say("general", "@alpha not this")
    await waits(slack, root, 1)
    await ana.say("general", "stop", thread=root)
    await slack.until(lambda _: texts(slack, root) == ["🛑 Stopped by Ana."])


@pytest.mark.parametrize("parked", [False, True], ids=["shown", "parked"])
async def test_a_message_that_waits_is_read_as_it_was_edited_last(slack, sessions, busy, ana, parked):
    for number in range(6 if parked else 0):
        await ana.say("general", f"@alpha before {number}")
    root = await ana.say("general", "@alpha old words")
    await shown_or_parked(slack, root, parked)
    await ana.edit("general", root, "@alpha new words")
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
    await busy[1][0].answer("done")
    while (run := await sessions.next_run()).prompt.startswith("before"):
        await run.answer("done")
    assert run.prompt == "new words"


@pytest.mark.parametrize("parked", [False, True], ids=["shown", "parked"])
async def test_a_message_that_is_deleted_while_it_waits_is_never_read(slack, sessions, busy, ana, parked):
    for number in range(6 if parked else 0):
        await ana.say("general", f"@alpha before {number}")
    root = await ana.say("general", "@alpha forget it")
    await shown_or_parked(slack, root, parked)
    await ana.delete("general", root)
    await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
    await ana.say("general", "@alpha last")
    await busy[1][0].answer("done")
    while (run := await sessions.next_run()).prompt != "last":
        await run.answer("done")
    assert "forget it" not in sessions.prompts


async def test_what_is_written_to_a_run_that_waits_is_given_to_it(slack, sessions, busy, ana):
    root = await ana.say("general", "@alpha task 3")
    await waits(slack, root, 1)
    reply = await ana.say("general", "and this", thread=root)
    await slack.until(lambda ws: ws.message("general", reply).reacted(ENVELOPE))
    await busy[1][0].answer("done")
    run = await sessions.next_run()
    await run.until(lambda r: [steer.text for steer in r.steers] == ["and this"])


async def test_runs_that_wait_when_the_process_ends_wait_in_the_next_one_and_begin_once(slack, sessions, process, ana):
    async with process(limits=TWO):
        roots = [await ana.say("general", f"@alpha task {number}") for number in range(10)]
        for _ in range(2):
            await sessions.next_run()
        await waits(slack, roots[2], 1)
        await shown_or_parked(slack, roots[9], True)
    sessions.obedient = False
    async with process(limits=TWO):
        for number in range(10):
            await (await sessions.next_run()).answer(f"done {number}")
        for root in roots:
            await slack.until(lambda ws, root=root: len(texts(slack, root)) == 1 and "done" in texts(slack, root)[0])
    assert sorted(filter(None, sessions.prompts)) == [f"task {number}" for number in range(10)]


async def test_what_is_written_to_a_parked_conversation_is_marked_and_read(slack, sessions, busy, ana):
    for number in range(6):
        await ana.say("general", f"@alpha before {number}")
    root = await ana.say("general", "@alpha parked")
    await shown_or_parked(slack, root, True)
    reply = await slack.as_person("ben").say("general", "and this", thread=root)
    await slack.until(lambda ws: ws.message("general", reply).reacted(ENVELOPE))
    await busy[1][0].answer("done")
    while (run := await sessions.next_run()).prompt.startswith("before"):
        await run.answer("done")
    assert run.prompt == "parked"
    await run.until(lambda r: [steer.text for steer in r.steers] == ["and this"])


async def test_a_mention_is_parked_and_marked_though_its_thread_cannot_be_read(slack, sessions, busy, ana):
    for number in range(5):
        await ana.say("general", f"@alpha before {number}")
    slack.faults.next("conversations.replies", Breaks(503), times=20)
    root = await ana.say("random", "among ourselves")
    mention = await ana.say("random", "@alpha parked", thread=root)
    await slack.until(lambda ws: ws.message("random", mention).reacted(ENVELOPE))
    await busy[1][0].answer("done")
    while (run := await sessions.next_run()).prompt.startswith("before"):
        await run.answer("done")
    assert run.prompt == "parked"


async def shown_or_parked(slack, root: str, parked: bool) -> None:
    """Wait until people see that the message waits: by a status message, or where many wait, by 📨 alone."""
    if parked:
        await slack.until(lambda ws: ws.message("general", root).reacted(ENVELOPE))
    else:
        await waits(slack, root, 1)
