"""A conversation is taken over: its run resumes, and its stored posts are posted once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from chat import EYES, HOURGLASS, ONE_PENDING, Thread

from connector import RunFailed
from local_slack import DropAfterCall, ErrorResponse

SUSPENDED = "⏸️ The service is restarting. I will continue in a moment."


@pytest.fixture
def suspended(process, sessions):
    """Run a process whose run is suspended at the end, as a loop does that gets the time for it."""

    @asynccontextmanager
    async def suspended(*, is_shown: bool = True):
        sessions.obedient = True
        async with process(shutdown_grace_s=5) as chat:
            yield await (chat.start_shown() if is_shown else chat.start())
        sessions.obedient = False

    return suspended


@pytest.fixture
async def answered(process) -> Thread:
    """A thread with an answer of an earlier process."""
    async with process() as chat:
        thread = await chat.start_shown()
        await thread.run.answer("ok")
        await thread.shows("ok")
    return thread


async def test_a_run_continues_with_the_same_status_message_and_answers_once(process, suspended):
    async with suspended() as thread:
        status = await thread.status()
    assert [(m.ts, m.text) for m in thread.posts] == [(status.ts, SUSPENDED)]
    assert thread.message(thread.ts).reacted(HOURGLASS)
    async with process():
        run = await thread.next_run()
        assert run.resumed
        await run.progress("tool:start", tool="t", args={}, id="1", label="Running the tests")
        assert (await thread.contains("⚙️ Alpha: Running the tests…")).ts == status.ts
        assert len(thread.posts) == 1
        await run.answer("the answer", part=1)
        await thread.shows("the answer")


async def test_posted_texts_that_the_run_reports_again_are_not_posted_again(process, suspended):
    async with suspended() as thread:
        await thread.run.progress("text", text="first", part=1)
        await thread.contains("first")
    async with process():
        run = await thread.next_run()
        await run.progress("text", text="first", part=1)
        await run.progress("text", text="second", part=2)
        await run.answer("third", part=3)
        await thread.shows("first", "second", "third")


async def test_messages_that_were_not_delivered_are_injected_into_the_resumed_run(process, suspended):
    async with suspended() as thread:
        await thread.inject("delivered")
        await thread.run.deliver()
        await thread.inject("given")
    missed = await thread.say("missed")
    async with process() as chat:
        run = await thread.next_run()
        await run.injected("given", "missed")
        await run.deliver()
        await thread.marked(missed, EYES)
        await run.answer("ok")
        await thread.shows("ok")
        assert chat.sessions.idle


async def test_a_stop_before_the_end_of_the_process_stops_the_resumed_run(process, sessions):
    async with process() as chat:
        thread = await chat.start_shown()
        await thread.inject("waits")
        await thread.stop()
    sessions.obedient = True
    async with process():
        await thread.shows(f"🛑 Stopped by Ana. {ONE_PENDING}")
        assert sessions.idle


async def test_a_message_whose_run_had_not_begun_starts_one(process, sessions):
    sessions.hold_setup = asyncio.Event()
    async with process() as chat:
        thread = await chat.say("@alpha look")
        await thread.marked(thread.ts, HOURGLASS)
    sessions.hold_setup = None
    async with process():
        run = await thread.next_run()
        assert (run.prompt, run.resumed) == ("look", False)
        await run.answer("ok")
        await thread.shows("ok")


@pytest.mark.parametrize("is_taken_over", [False, True])
@pytest.mark.parametrize("is_edit", [False, True])
async def test_a_change_of_a_message_that_a_stopped_run_leaves_to_the_next_one(
    process, slack, sessions, is_edit, is_taken_over
):
    async with process() as chat:
        thread = await chat.start_shown()
        thread.run.listening = False
        waits = await thread.accept("waits")
        await thread.stopped()
        await thread.contains(ONE_PENDING)
        await thread.marked(thread.ts, HOURGLASS, gone=True)
        sessions.obedient, setup = True, asyncio.Event()
        sessions.hold_setup = setup
        await thread.accept("continue")  # a run begins with the other message
        await thread.marked(waits, HOURGLASS)
        await thread.cross(waits, who="ben")
        await chat.acknowledged()
        post = chat.hold("chat.postMessage")
        setup.set()
        await post.reached.wait()
        sessions.obedient, sessions.hold_setup = False, None
        await (thread.edit(waits, "waits no more") if is_edit else thread.delete(waits))
        await thread.accept("now")  # after the change
        if not is_taken_over:
            post.set()
            await check_next(thread, "waits no more" if is_edit else "continue")
            return
    slack.faults.clear()
    async with process():
        await check_next(thread, "waits no more" if is_edit else "continue")


async def check_next(thread, prompt):
    run = await thread.next_run()
    await run.until(lambda run: run.texts[-1:] == ["now"])
    assert [run.prompt, *run.texts][:2] == [prompt, "continue" if prompt != "continue" else "now"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_answer_in_flight_is_posted_once(process, slack, sessions, arrives):
    async with process() as chat:
        thread = await chat.start_shown()
        if arrives:
            chat.fail("chat.postMessage", DropAfterCall())
            held = chat.hold("conversations.replies")
        else:
            held = chat.hold("chat.postMessage")
        await thread.run.answer("the answer", part=1)
        await held.reached.wait()
        assert ("the answer" in thread.texts) is arrives
    slack.faults.clear()
    async with process():
        await thread.shows("the answer")
    assert sessions.prompts == ["look"]


async def test_a_status_message_whose_post_was_in_doubt_is_found(process, slack, suspended):
    slack.faults.next("chat.postMessage", DropAfterCall())
    async with suspended(is_shown=False) as thread:
        await thread.status()
    async with process():
        await (await thread.next_run()).answer("the answer")
        await thread.shows("the answer")


async def test_unknown_outcomes_are_named_once_however_often_the_run_is_resumed(process):
    call = {"tool": "bash", "id": "1", "label": "Running the tests", "outcome": "unknown"}
    other = {"tool": "bash", "id": "2", "label": "Tidying up", "outcome": "unknown"}
    async with process() as chat:
        thread = await chat.start_shown()
    for calls in ([call], [call], [call, other]):
        async with process():
            run = await thread.next_run()
            await run.progress("resumed", tools=calls, unknown=[each["label"] for each in calls])
            await thread.contains(calls[-1]["label"])
    async with process():
        await (await thread.next_run()).answer("the answer", part=1)
        first, second, answer = await thread.ended()
    assert "Running the tests. " in first
    assert "Running the tests and Tidying up. " in second
    assert answer == "the answer"


async def test_a_run_whose_log_is_lost_is_not_repeated_and_the_thread_says_so(process, sessions, suspended):
    async with suspended() as thread:
        await thread.say("and this")
        await thread.chat.acknowledged()
    sessions.forgetful = RunFailed("What I was doing is lost. Write again.")
    async with process():
        await thread.contains("⚠️ What I was doing is lost. Write again.")
        sessions.forgetful = None
        run = await thread.next_run()
        assert (run.prompt, run.resumed) == ("and this", False)
    assert sessions.prompts == ["look", "and this"]


async def test_a_message_starts_a_run_before_the_correction_that_follows_it(process, answered):
    await answered.say("continue")
    await answered.edit(answered.ts, "@alpha look closely")
    async with process():
        run = await answered.next_run()
        assert run.prompt == "continue"
        await run.until(lambda r: len(r.injections) == 1)


async def test_a_message_that_was_edited_and_deleted_between_two_processes_is_never_read(process, answered):
    missed = await answered.say("and this")
    await answered.edit(missed, "no, that")
    await answered.delete(missed)
    async with process() as chat:
        await chat.acknowledged()
        await answered.say("continue")
        run = await answered.next_run()
        assert (run.prompt, run.injections) == ("continue", [])


@pytest.mark.parametrize("is_corrected", [False, True])
async def test_a_message_that_was_stopped_between_two_processes_starts_no_run(process, answered, is_corrected):
    if is_corrected:
        await answered.edit(answered.ts, "@alpha look closely")
    await answered.say("and this")
    await answered.say("stop")
    async with process():
        await answered.shows("ok", "🛑 Stopped by Ana.")
        await answered.say("continue")
        run = await answered.next_run()
        await run.injected(*(["continue"] if is_corrected else []))
        assert ("look closely" in run.prompt) is is_corrected, "a stop does not withdraw a correction"


async def test_a_run_cancelled_by_the_end_of_its_process_is_resumed_and_not_reported_as_stopped(process):
    async with process(shutdown_grace_s=0.4) as chat:
        thread = await chat.start_shown()

        async def end_when_stopped() -> None:
            await thread.run.until(lambda r: bool(r.stops))
            await thread.run.answer("", status="cancelled")

        end = asyncio.create_task(end_when_stopped())
    await end
    async with process():
        run = await thread.next_run()
        assert run.resumed
        await run.answer("the answer", part=1)
        await thread.shows("the answer")


async def test_a_second_stop_before_the_end_of_the_process_is_an_immediate_one_for_the_next(process):
    async with process() as chat:
        thread = await chat.start_shown()
        await thread.stop()
        await thread.stop()
        await thread.run.stopped(False, True)
    async with process():
        run = await thread.next_run()
        await run.stopped(True)
        await run.answer("", status="cancelled")
        await thread.shows("🛑 Stopped by Ana.")


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
