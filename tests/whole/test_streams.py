"""An answer that is shown while it is written reaches the thread once, wherever a process is killed."""

from __future__ import annotations

import pytest
from anthropic_server import Gate, text, tool_call
from scenario import Scenario

from local_slack import DropAfterCall

START, APPEND, STOP, LOOK = "chat.startStream", "chat.appendStream", "chat.stopStream", "conversations.replies"
BEGUN = "".join(f"Sentence number {n} of the answer is not short. " for n in range(8))
WHOLE = f"{BEGUN}And it has an end."


async def is_complete(there: Scenario, *texts: str) -> None:
    """Wait until the bot's texts are these, and check that nothing is being streamed."""
    channel = there.slack.channel("general").id
    await there.slack.until(lambda _: there.stage.said(there.root) == [*texts], 90)
    assert await there.final_texts() == [*texts]
    messages = there.slack.workspace.thread(channel, there.root)
    assert not any(there.slack.workspace.streams.is_open(channel, each.ts) for each in messages)


async def test_an_answer_is_visible_while_the_model_writes_it(serving):
    writing = Gate()
    async with serving() as there:
        there.model.reply(text(BEGUN, writing, "And it has an end."))
        await there.say("@alpha look")
        await there.sees("Sentence number 7")
        writing.open()
        await is_complete(there, WHOLE)


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_a_process_that_is_killed_while_the_model_writes_leaves_one_answer(serving, store):
    writing = Gate()
    async with serving(store) as there:
        there.model.reply(text(BEGUN, writing, "Too late."))
        await there.say("@alpha look")
        await there.sees("Sentence number 7")
        there.model.reply(text(WHOLE))
        await there.kill()
        await is_complete(there, WHOLE)


@pytest.mark.parametrize("method", [START, APPEND, STOP])
async def test_a_process_that_is_killed_during_a_call_of_a_stream_leaves_one_answer(serving, method):
    writing = Gate()
    async with serving() as there:
        hold = there.hold(method)
        there.model.reply(text(BEGUN, writing, "And it has an end."))
        await there.say("@alpha look")
        if method == STOP:
            await there.sees("Sentence number 7")
            writing.open()
        await hold.reached.wait()
        there.model.reply(text(WHOLE))
        await there.kill()
        await is_complete(there, WHOLE)


async def test_a_process_that_is_killed_after_it_completed_a_stream_leaves_one_answer(serving):
    writing = Gate()
    async with serving() as there:
        there.model.reply(text(BEGUN, writing, "And it has an end."))
        await there.say("@alpha look")
        await there.sees("Sentence number 7")
        there.slack.faults.next(STOP, DropAfterCall())
        hold = there.hold(LOOK)
        writing.open()
        await hold.reached.wait()
        await there.sees("And it has an end.")
        await there.kill()
        await is_complete(there, WHOLE)


async def test_a_stream_of_which_a_killed_process_did_not_hear_is_removed(serving):
    writing = Gate()
    async with serving() as there:
        there.slack.faults.next(START, DropAfterCall())
        there.model.reply(text(BEGUN, writing, "Too late."))
        await there.say("@alpha look")
        await there.slack.until(lambda _: "" in there.stage.said(there.root))
        there.model.reply(text(WHOLE))
        await there.kill()
        await is_complete(there, WHOLE)


async def test_an_orderly_restart_while_the_model_writes_leaves_one_answer(serving):
    writing = Gate()
    async with serving() as there:
        there.model.reply(text(BEGUN, writing, "Too late."))
        await there.say("@alpha look")
        await there.sees("Sentence number 7")
        there.model.reply(text(WHOLE))
        assert await there.replicas.each[0].terminate() == 0
        await there.start(there.replicas.each[0])
        await is_complete(there, WHOLE)


async def test_text_before_a_tool_call_makes_room_for_the_answer(serving):
    async with serving() as there:
        there.model.reply(text(BEGUN), tool_call("run_tests", {}))
        there.model.reply(text(WHOLE))
        await there.say("@alpha look")
        await there.tests.reached.wait()
        there.tests.open()
        await is_complete(there, WHOLE)
