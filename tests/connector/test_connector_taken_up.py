"""A run whose process ends goes on in the next one, with the traces that it left."""

from __future__ import annotations

import asyncio

import pytest
from slack_environment import Hold
from takeover_threads import begun, bot_posts, is_marked, of_an_earlier_run, over, texts

from connector import RunFailed
from local_slack import DropsAfterwards, Refuses, Waits

SUSPENDED = "⏸️ The service is restarting. I will continue in a moment."


async def test_it_goes_on_with_the_same_status_message_and_answers_once(slack, sessions, process, ana):
    async with process():
        root, _ = await begun(slack, ana, sessions)
        (status,) = bot_posts(slack, root)
    assert [(m.ts, m.text) for m in bot_posts(slack, root)] == [(status.ts, SUSPENDED)]
    assert is_marked(slack, root)
    sessions.obedient = False
    async with process():
        run = await sessions.next_run()
        assert run.resumed
        await run.progress("tool:start", tool="t", args={}, id="1", label="Running the tests")
        await slack.until(lambda _: texts(slack, root) == ["⚙️ Running the tests…"])
        assert [m.ts for m in bot_posts(slack, root)] == [status.ts]
        await run.answer("the answer", part=1)
        assert await over(slack, root) == ["the answer"]


async def test_each_owner_has_a_higher_token(slack, sessions, process, ana):
    async with process():
        _, run = await begun(slack, ana, sessions)
    async with process():
        again = await sessions.next_run()
        assert again.fence > run.fence


async def test_texts_that_are_told_again_are_not_posted_again(slack, sessions, process, ana):
    async with process():
        root, run = await begun(slack, ana, sessions)
        await run.progress("text", text="first", part=1)
        await slack.until(lambda _: "first" in texts(slack, root))
    sessions.obedient = False
    async with process():
        run = await sessions.next_run()
        await run.progress("text", text="first", part=1)
        await run.progress("text", text="second", part=2)
        await run.answer("third", part=3)
        assert await over(slack, root) == ["first", "second", "third"]


async def test_what_was_written_meanwhile_is_read_by_the_run_that_goes_on(slack, sessions, process, ana):
    async with process():
        root, run = await begun(slack, ana, sessions)
        await ana.say("general", "read", thread=root)
        await run.until(lambda r: len(r.steers) == 1)
        await run.read_steers()
        await ana.say("general", "given", thread=root)
        await run.until(lambda r: len(r.steers) == 2)
    missed = await ana.say("general", "missed", thread=root)
    sessions.obedient = False
    async with process():
        run = await sessions.next_run()
        await run.until(lambda r: [s.text for s in r.steers] == ["given", "missed"])
        await run.read_steers()
        await slack.until(lambda _: is_marked(slack, missed, "eyes"))
        await run.answer("ok")
        assert await over(slack, root) == ["ok"]
        assert sessions.idle


async def test_a_stop_that_came_before_the_end_of_the_process_is_still_a_stop(slack, sessions, process, ana):
    sessions.obedient = False
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        await ana.say("general", "waits", thread=root)
        await run.until(lambda r: len(r.steers) == 1)
        await ana.say("general", "stop", thread=root)
        await run.until(lambda r: bool(r.stops))
    sessions.obedient = True
    async with process():
        assert await over(slack, root) == [
            "🛑 Stopped by Ana. 1 message has not been read yet. I will read it with your next message."
        ]
        assert sessions.idle


async def test_what_a_stop_held_back_stays_held_back(slack, sessions, process, ana):
    async with process():
        root, run = await begun(slack, ana, sessions)
        await ana.say("general", "waits", thread=root)
        await run.until(lambda r: len(r.steers) == 1)
        await ana.say("general", "stop", thread=root)
        await over(slack, root)
    sessions.obedient = False
    async with process():
        await ana.say("general", "go on", thread=root)
        run = await sessions.next_run()
        await run.until(lambda r: len(r.steers) == 1)
        assert [run.prompt, run.steers[0].text] == ["waits", "go on"]
        assert not run.resumed
        await run.answer("ok")
        await over(slack, root)


async def test_a_message_that_no_run_had_begun_with_begins_one(slack, sessions, process, ana):
    sessions.hold_setup = asyncio.Event()
    async with process(grace_s=0.1):
        root = await ana.say("general", "@alpha look")
        await slack.until(lambda _: is_marked(slack, root))
    sessions.hold_setup, sessions.obedient = None, False
    async with process():
        run = await sessions.next_run()
        assert (run.prompt, run.resumed) == ("look", False)
        await run.answer("ok")
        assert await over(slack, root) == ["ok"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_answer_that_was_on_its_way_is_in_the_thread_once(slack, sessions, process, ana, arrives):
    sessions.obedient = False
    held = Hold()
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        slack.faults.next("chat.postMessage", DropsAfterwards() if arrives else Waits(held))
        slack.faults.next("conversations.replies", Waits(held))
        await run.answer("the answer", part=1)
        await held.reached.wait()
        assert ("the answer" in texts(slack, root)) is arrives
    slack.faults.clear()
    async with process():
        assert await over(slack, root) == ["the answer"]
    assert sessions.prompts == ["look"]
    held.set()


async def test_a_status_that_slack_had_taken_unseen_is_found(slack, sessions, process, ana):
    slack.faults.next("chat.postMessage", DropsAfterwards())
    async with process():
        root = await ana.say("general", "@alpha look")
        await sessions.next_run()
        await slack.until(lambda _: bot_posts(slack, root))
    sessions.obedient = False
    async with process():
        await (await sessions.next_run()).answer("the answer")
        assert await over(slack, root) == ["the answer"]


async def test_calls_of_which_nobody_knows_what_they_did_are_named_in_the_thread(slack, sessions, process, ana):
    async with process():
        root, _ = await begun(slack, ana, sessions)
    sessions.obedient = False
    async with process():
        run = await sessions.next_run()
        await run.progress("resumed", unknown=["Running the tests"], retried=[])
        await run.answer("the answer", part=1)
        assert await over(slack, root) == [
            (
                "🔁 I was interrupted and have resumed. Outcome unknown: Running the tests. "
                "Check whether it is done before you ask for it again."
            ),
            "the answer",
        ]


async def test_a_run_of_which_nothing_is_left_is_not_run_again_and_says_so(slack, sessions, process, ana):
    async with process():
        root, _ = await begun(slack, ana, sessions)
        await ana.say("general", "and this", thread=root)
        await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
    sessions.obedient, sessions.forgetful = False, RunFailed("What I was doing is lost. Write again.")
    async with process():
        await slack.until(lambda _: "⚠️ What I was doing is lost. Write again." in texts(slack, root))
        sessions.forgetful = None
        run = await sessions.next_run()
        assert (run.prompt, run.resumed) == ("and this", False)
        await run.answer("ok")
    assert sessions.prompts == ["look", "and this"]


async def test_a_message_begins_a_run_though_an_earlier_one_is_deleted_right_after_it(slack, sessions, process, ana):
    root = await of_an_earlier_run(slack, sessions, process, ana)
    await ana.say("general", "go on", thread=root)
    await ana.edit("general", root, "@alpha look closely")
    async with process():
        run = await sessions.next_run()
        assert run.prompt == "go on"
        await run.until(lambda r: len(r.steers) == 1)
        await run.answer("ok")


async def test_what_was_edited_and_deleted_before_anybody_looked_is_never_read(slack, sessions, process, ana):
    root = await of_an_earlier_run(slack, sessions, process, ana)
    missed = await ana.say("general", "and this", thread=root)
    await ana.edit("general", missed, "no, that")
    await ana.delete("general", missed)
    async with process():
        await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
        await ana.say("general", "go on", thread=root)
        run = await sessions.next_run()
        assert (run.prompt, run.steers) == ("go on", [])
        await run.answer("ok")
        await over(slack, root)
    assert sessions.prompts == ["look", "go on"]


async def test_what_was_stopped_before_anybody_looked_does_not_begin_and_the_thread_says_so(
    slack, sessions, process, ana
):
    root = await of_an_earlier_run(slack, sessions, process, ana)
    await ana.say("general", "and this", thread=root)
    await ana.say("general", "stop", thread=root)
    async with process():
        await slack.until(lambda _: "🛑 Stopped by Ana." in texts(slack, root))
        await ana.say("general", "go on", thread=root)
        run = await sessions.next_run()
        assert (run.prompt, run.steers) == ("go on", [])
        await run.answer("ok")


async def test_a_stop_before_anybody_looked_leaves_a_correction_for_the_next_run(slack, sessions, process, ana):
    root = await of_an_earlier_run(slack, sessions, process, ana)
    await ana.edit("general", root, "@alpha look closely")
    await ana.say("general", "and this", thread=root)
    await ana.say("general", "stop", thread=root)
    async with process():
        await slack.until(lambda _: "🛑 Stopped by Ana." in texts(slack, root))
        await ana.say("general", "go on", thread=root)
        run = await sessions.next_run()
        await run.until(lambda r: len(r.steers) == 1)
        assert "look closely" in run.prompt
        assert run.steers[0].text == "go on"
        await run.answer("ok")


async def test_an_answer_waits_for_a_slack_that_is_away(slack, sessions, process, ana):
    sessions.obedient = False
    async with process():
        root, run = await begun(slack, ana, sessions)
        slack.faults.next("chat.postMessage", Refuses("service_unavailable"), times=5)
        await run.answer("the answer", part=1)
        assert await over(slack, root, within_s=30) == ["the answer"]


async def test_a_run_that_has_failed_and_said_so_is_not_tried_again(slack, sessions, process, ana):
    sessions.obedient = False
    held = Hold()
    async with process(grace_s=0.1):
        root, run = await begun(slack, ana, sessions)
        slack.faults.next("chat.delete", Waits(held))
        await run.fail(RunFailed("The model is away."))
        await held.reached.wait()
    held.set()
    async with process():
        assert await over(slack, root) == ["⚠️ The model is away."]
    assert sessions.prompts == ["look"]
