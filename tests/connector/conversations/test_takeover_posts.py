"""Texts are stored before they are posted: the next owner of the conversation posts the remaining ones, and no more."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from chat import ALPHA, BETA, ONE_PENDING

from connector import RunFailed
from local_slack import ErrorResponse


@pytest.fixture
def interrupted(process, slack):
    """Run a process that ends during its next post; yield the thread with its run, and the post."""

    @asynccontextmanager
    async def interrupted():
        async with process() as chat:
            thread = await chat.start_shown()
            yield thread, chat.hold("chat.postMessage")
        slack.faults.clear()

    return interrupted


@pytest.mark.parametrize("last", ["⚠️ The model is away.", "third"])
async def test_texts_that_are_not_posted_at_the_end_of_the_run_are_posted(process, sessions, interrupted, last):
    async with interrupted() as (thread, post):
        await thread.run.progress("text", text="first", part=1)
        await post.reached.wait()
        await thread.run.progress("text", text="second", part=2)
        if last == "third":
            await thread.run.answer(last, part=3)
        else:
            await thread.run.fail(RunFailed("The model is away."))
    async with process():
        await thread.shows("first", "second", last)
    assert sessions.prompts == ["look"]


async def test_a_conversation_with_an_unposted_answer_is_handed_over(process, sessions, interrupted, store, slack):
    async with interrupted() as (thread, post):
        await thread.run.answer("the answer", part=1)
        await post.reached.wait()
    assert len(await store.due(slack.team_id, 5)) == 1, "no process waits for its lease to expire"
    async with process():
        await thread.shows("the answer")
    assert sessions.prompts == ["look"]


async def test_the_reason_of_a_refused_message_is_posted(process, interrupted):
    async with interrupted() as (thread, post):
        await thread.run.progress("text", text="first", part=1)
        await post.reached.wait()
        thread.run.refuses = True
        await thread.say("no words")
        await thread.run.until(lambda r: r.refused == 1)
    async with process():
        run = await thread.next_run()
        await run.progress("text", text="first", part=1)
        await run.answer("ok", part=2)
        reason = "📭 Not accepted: “no words”. It has no words; send it with some."
        assert sorted(await thread.ended()) == sorted(["first", reason, "ok"])
        assert run.injections == []


async def test_the_stop_of_a_run_that_had_not_begun_is_reported(process, slack, sessions):
    async with process() as chat:
        thread = await chat.start_shown()
        await thread.run.answer("ok")
        await thread.shows("ok")
    await thread.say("and this")
    await thread.say("stop")
    held = chat.hold("chat.postMessage")
    async with process():
        await held.reached.wait()
    slack.faults.clear()
    async with process():
        await thread.shows("ok", "🛑 Stopped by Ana.")
    assert sessions.idle


async def test_a_message_that_a_stop_held_back_after_the_answer_is_named(process, sessions, interrupted):
    async with interrupted() as (thread, post):
        await thread.run.answer("the answer", part=1)
        await post.reached.wait()
        await thread.accept("waits")
        await thread.say("stop")
        await thread.chat.acknowledged()
    async with process():
        await thread.shows("the answer", f"📨 {ONE_PENDING}")
        assert sessions.idle


async def test_a_message_that_the_stop_notice_names_is_not_named_again(process, interrupted):
    async with interrupted() as (thread, post):
        await thread.accept("waits")
        await thread.stopped()
        await post.reached.wait()
    notice = f"🛑 Stopped by Ana. {ONE_PENDING}"
    async with process():
        await thread.shows(notice)
        await thread.say("continue")
        run = await thread.next_run()
        assert (run.prompt, run.resumed) == ("waits", False)
        await run.answer("ok")
        await thread.shows(notice, "ok")


async def test_a_run_with_its_last_notice_stored_accepts_no_message(process, interrupted):
    async with interrupted() as (thread, post):
        await thread.run.answer("", status="incomplete", reason="max_iterations")
        await post.reached.wait()
    await thread.say("continue")
    async with process():
        run = await thread.next_run()
        assert (run.prompt, run.resumed) == ("continue", False)
        await run.fail(RunFailed("The model is away."))
        why = "⏸️ I stopped here: this run has reached its step limit. Write “continue” and I will carry on."
        await thread.shows(why, "⚠️ The model is away.")


async def test_the_texts_of_another_instance_that_repeats_the_run_are_posted(process):
    async with process(ALPHA) as chat:
        thread = await chat.start_shown()
        await thread.run.progress("text", text="first", part=1)
        await thread.contains("first")
    async with process(BETA):
        run = await thread.next_run()
        assert (run.instance, run.resumed) == ("beta", False)
        await run.answer("the answer of beta", part=1)
        await thread.shows("first", "the answer of beta")


async def test_a_user_whose_conversation_is_closed_gets_the_direct_message(process, slack):
    async with process() as chat:
        thread = await chat.start_shown()
        chat.fail("chat.postMessage", ErrorResponse("is_archived"))
        direct_message = chat.hold("chat.postMessage")
        await thread.run.progress("text", text="first", part=1)
        await direct_message.reached.wait()
    slack.faults.clear()
    direct_message.set()
    dm = await chat.ana.open_dm("alpha")
    async with process():
        await slack.until(lambda ws: any(m.text.startswith("⚠️ I could not continue in") for m in ws.messages(dm)))
        run = await thread.next_run()
        await run.stopped(True)
        await run.answer("", status="cancelled")
