"""The number of concurrent runs is limited: further runs wait, show their position, and begin in order."""

from __future__ import annotations

import pytest
from chat import ENVELOPE, HOURGLASS, Thread

from connector import RunLimits
from local_slack import ServerError

TWO = RunLimits(runs_per_person=2)
# With so many waiting runs before it, a conversation waits without a lease and without a status message.
WAITING = 6
IS_PARKED = pytest.mark.parametrize("is_parked", [False, True], ids=["shown", "parked"])


@pytest.fixture
async def chat(process):
    """A chat in which Ana has two active runs, the most that she may have."""
    async with process(limits=TWO) as chat:
        chat.active = [await chat.start(f"@alpha task {number}") for number in (1, 2)]
        yield chat


async def has_position(thread, position: int) -> None:
    text = f"⏳ Waiting, position {position} in the queue: 2 runs of yours are active."
    await thread.chat.slack.until(lambda _: thread.texts == [text])


async def waiting(chat, text: str, *, is_parked: bool = False) -> Thread:
    """Post a message whose run waits: the position in the queue shows it, or 📨 alone if many wait."""
    for number in range(WAITING if is_parked else 0):
        await chat.say(f"@alpha before {number}")
    thread = await chat.say(text)
    await (thread.marked(thread.ts, ENVELOPE) if is_parked else has_position(thread, 1))
    return thread


async def run_after_the_others(chat):
    """End an active run and those before, and return the next one."""
    await chat.active[0].run.answer("done")
    while (run := await chat.sessions.next_run()).prompt.startswith("before"):
        await run.answer("done")
    return run


async def test_further_runs_wait_with_their_positions_and_begin_in_order(chat):
    third, fourth = [await chat.say(f"@alpha task {number}") for number in (3, 4)]
    await has_position(third, 1)
    await has_position(fourth, 2)
    await third.marked(third.ts, HOURGLASS)
    assert chat.sessions.prompts == ["task 1", "task 2"]
    await chat.active[1].run.answer("done")
    run = await third.next_run()
    assert run.prompt == "task 3"
    await has_position(fourth, 1)
    await run.answer("the answer")
    await third.shows("the answer")
    assert (await fourth.next_run()).prompt == "task 4"


async def test_the_run_of_another_person_does_not_wait(chat):
    others = [await chat.say(f"@alpha more {number}") for number in range(20)]
    await has_position(others[0], 1)
    thread = Thread(chat, await chat.ben.say("general", "@alpha mine"))
    await (await thread.next_run()).answer("yours")
    await thread.shows("yours")


async def test_a_channel_and_the_process_have_limits_too(process):
    async with process(limits=RunLimits(runs=2, runs_per_channel=1)) as chat:
        await chat.start("@alpha one")
        thread = Thread(chat, await chat.ben.say("general", "@alpha two"))
        await thread.contains("⏳ Waiting, position 1 in the queue: 1 run in this channel is active.")
        await chat.ben.say("random", "@alpha three")
        assert (await chat.sessions.next_run()).prompt == "three"
        await chat.ana.dm("alpha", "four")
        dm = await chat.ana.open_dm("alpha")
        text = "⏳ Waiting, position 2 in the queue: 2 runs are active."
        await chat.slack.until(lambda ws: any(m.text == text for m in ws.messages(dm)))


@IS_PARKED
async def test_a_cross_stops_a_waiting_run_at_once(chat, is_parked):
    thread = await waiting(chat, "@alpha not this", is_parked=is_parked)
    await thread.cross()
    await thread.shows("🛑 Stopped by Ana.")
    await thread.marked(thread.ts, ENVELOPE, gone=True)
    for active in chat.active:
        await active.run.answer("done")
    assert "not this" not in chat.sessions.prompts


async def test_a_stop_word_stops_a_waiting_run(chat):
    thread = await waiting(chat, "@alpha not this")
    await thread.say("stop")
    await thread.shows("🛑 Stopped by Ana.")


@IS_PARKED
async def test_a_waiting_run_begins_with_the_edited_text(chat, is_parked):
    thread = await waiting(chat, "@alpha old words", is_parked=is_parked)
    await thread.edit(thread.ts, "@alpha new words")
    await chat.acknowledged()
    assert (await run_after_the_others(chat)).prompt == "new words"


@IS_PARKED
async def test_a_message_that_is_deleted_while_its_run_waits_is_never_read(chat, is_parked):
    thread = await waiting(chat, "@alpha forget it", is_parked=is_parked)
    await thread.delete(thread.ts)
    await chat.acknowledged()
    await chat.say("@alpha last")
    assert (await run_after_the_others(chat)).prompt == "last"
    assert "forget it" not in chat.sessions.prompts


@IS_PARKED
async def test_a_reply_to_a_waiting_run_is_accepted_and_injected(chat, is_parked):
    thread = await waiting(chat, "@alpha task 3", is_parked=is_parked)
    await thread.accept("and this", who="ben")
    run = await run_after_the_others(chat)
    assert run.prompt == "task 3"
    await run.injected("and this")


async def test_runs_that_wait_at_the_end_of_the_process_begin_once_in_the_next(process, sessions):
    sessions.obedient = True
    async with process(limits=TWO, shutdown_grace_s=5) as chat:
        threads = [await chat.say(f"@alpha task {number}") for number in range(10)]
        for _ in range(2):
            await sessions.next_run()
        await has_position(threads[2], 1)
        await threads[9].marked(threads[9].ts, ENVELOPE)
    sessions.obedient = False
    async with process(limits=TWO):
        for _ in range(10):
            await (await sessions.next_run()).answer("done")
        for thread in threads:
            await thread.shows("done")
    assert sorted(filter(None, sessions.prompts)) == [f"task {number}" for number in range(10)]


async def test_a_mention_waits_without_a_lease_while_its_thread_cannot_be_read(chat):
    for number in range(5):
        await chat.say(f"@alpha before {number}")
    chat.fail("conversations.replies", ServerError(503), times=20)
    thread = await chat.say("among ourselves", "random")
    await thread.accept("@alpha parked")
    assert (await run_after_the_others(chat)).prompt == "parked"
