from __future__ import annotations

import asyncio
import gc

import pytest
from fake_sessions import FakeSessionManager

from connector import Instance, Persona, RunFailed, SlackCredentials, SocketTransport, connected
from local_slack import Breaks, DropsAfterwards

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
ONE_WAITS = "1 message has not been read yet"


async def all_taken(scene) -> None:
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)


async def begun(scene):
    """A run with its hourglass and its status."""
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    return ts, run


async def late_message(scene, ts, run) -> str:
    """A message that was accepted after the loop's last look."""
    run.listening = False
    late = await scene.ana.say("general", "late", thread=ts)
    await scene.reacted("general", late, "incoming_envelope")
    return late


async def over(scene, ts) -> list[str]:
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)
    return scene.texts("general", ts)


async def test_what_was_written_between_the_first_and_the_second_stop_starts_no_run_by_itself(scene):
    ts, run = await begun(scene)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: r.stops == [False])
    between = await scene.ana.say("general", "between", thread=ts)
    await scene.reacted("general", between, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: r.stops == [False, True])
    await run.answer("", status="cancelled")
    await scene.posted("general", ts, "🛑 Stopped by Ana.")
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)
    await scene.ana.say("random", "@alpha elsewhere")
    assert (await scene.sessions.next_run()).prompt == "elsewhere"


async def test_a_stop_while_the_answer_is_posted_names_the_message_that_it_holds_back(scene, hold):
    ts, run = await begun(scene)
    post = hold("chat.postMessage")
    await run.answer("the answer")
    late = await scene.ana.say("general", "late", thread=ts)
    await scene.reacted("general", late, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await all_taken(scene)
    post.set()
    await scene.posted("general", ts, "the answer")
    texts = await over(scene, ts)
    assert any(ONE_WAITS in text for text in texts), texts


async def test_a_stop_that_comes_too_late_to_cut_the_answer_names_the_message_that_it_holds_back(scene):
    ts, run = await begun(scene)
    await late_message(scene, ts, run)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("the answer")
    await scene.posted("general", ts, "the answer")
    texts = await over(scene, ts)
    assert any(ONE_WAITS in text for text in texts), texts


async def test_a_stopped_run_that_fails_names_the_message_that_the_stop_holds_back(scene):
    ts, run = await begun(scene)
    await late_message(scene, ts, run)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.fail(RunFailed("The model is away."))
    await scene.posted("general", ts, "The model is away.")
    texts = await over(scene, ts)
    assert any(ONE_WAITS in text for text in texts), texts


async def test_a_text_that_a_module_hands_to_the_loop_does_not_cost_people_their_eyes(scene):
    ts, run = await begun(scene)
    steer = await scene.ana.say("general", "and this", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    ids = ["5f0c5d4ee3a84b64a0b2e1a2c0d9f7aa", run.steers[0].id]
    await run.progress("injection:applied", ids=ids, messages=["from a tool", "and this"], count=2)
    await scene.reacted("general", steer, "eyes")
    await run.answer("ok")


async def test_a_cancellation_from_inside_a_run_is_no_shut_down_and_loses_no_message(scene):
    ts, run = await begun(scene)
    await late_message(scene, ts, run)
    run._end.cancel()
    await over(scene, ts)
    assert (await scene.sessions.next_run()).prompt == "late"


async def test_a_steer_that_is_refused_after_set_up_keeps_no_mark_of_acceptance(scene):
    scene.sessions.hold_setup = asyncio.Event()
    ts = await scene.ana.say("general", "@alpha look")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    early = await scene.ana.say("general", "one too many", thread=ts)
    await scene.reacted("general", early, "incoming_envelope")
    (run,) = scene.sessions._active.values()
    run.refuses = True
    scene.sessions.hold_setup.set()
    await scene.posted("general", ts, "send it with some")
    await scene.reacted("general", early, "incoming_envelope", gone=True)
    await run.answer("ok")


async def test_stop_addressed_to_the_instance_that_runs_is_a_stop(scene):
    ts, run = await begun(scene)
    await scene.ana.say("general", "alpha: stop", thread=ts)
    await run.until(lambda r: bool(r.stops or r.steers))
    assert run.stops == [False]
    await run.answer("", status="cancelled")


async def test_a_message_that_waited_is_not_lost_when_the_run_that_it_leads_is_stopped_before_it_begins(scene, hold):
    ts, run = await begun(scene)
    await scene.ana.say("general", "so that Ana's name is known", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    await run.read_steers()
    run.listening = False
    lookup = hold("users.info")
    waiting = await scene.ana.say("general", "@alpha ask @chloe", thread=ts)
    await scene.reacted("general", waiting, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("", status="cancelled")
    await scene.posted("general", ts, ONE_WAITS)
    await over(scene, ts)
    await scene.ana.say("general", "go on", thread=ts)
    await scene.ana.say("general", "stop", thread=ts)
    await all_taken(scene)
    lookup.set()
    await scene.slack.until(lambda _: sum("Stopped by Ana" in text for text in scene.texts("general", ts)) == 2)
    await over(scene, ts)
    await scene.ana.say("general", "now", thread=ts)
    run = await scene.sessions.next_run()
    await run.until(lambda r: "now" in (r.prompt, *(s.text for s in r.steers)))
    assert [run.prompt, *(s.text for s in run.steers)] == [
        f"ask @Chloe ({scene.slack.person('chloe').id})",
        "go on",
        "now",
    ]


async def test_a_status_in_doubt_that_cannot_be_looked_up_for_a_moment_does_not_stay_for_ever(scene):
    scene.slack.faults.next("chat.postMessage", DropsAfterwards())
    scene.slack.faults.next("conversations.replies", Breaks(503), times=4)
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await run.answer("the answer")
    assert await over(scene, ts) == ["the answer"]


@pytest.mark.parametrize("fault", [Breaks(503), DropsAfterwards()])
async def test_an_answer_in_doubt_that_cannot_be_looked_up_for_a_moment_is_in_the_thread_once(scene, fault):
    ts, run = await begun(scene)
    scene.slack.faults.next("chat.postMessage", fault)
    scene.slack.faults.next("conversations.replies", Breaks(503), times=4)
    await run.answer("the answer")
    assert await over(scene, ts) == ["the answer"]


async def test_an_answer_in_doubt_is_found_in_a_direct_message(scene):
    dm = await scene.ana.open_dm("alpha")
    ts = await scene.ana.say(dm, "hello")
    run = await scene.sessions.next_run()
    bots = lambda ws: [m for m in ws.messages(dm) if m.by_bot]  # noqa: E731
    await scene.slack.until(bots)
    scene.slack.faults.next("chat.postMessage", DropsAfterwards())
    await run.answer("hi")
    await scene.reacted(dm, ts, "hourglass_flowing_sand", gone=True)
    assert [m.text for m in bots(scene.slack.workspace)] == ["hi"]


async def test_leaving_leaves_no_task_behind(slack, runs, recwarn):
    sessions = FakeSessionManager()
    before = asyncio.all_tasks()
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
    async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1):
        ts = await slack.as_person("ana").say("general", "@alpha look")
        await sessions.next_run()
        await slack.until(lambda ws: ws.thread(slack.channel("general").id, ts)[1:])
        ours = {t for t in asyncio.all_tasks() - before if "connector" in repr(t) or "slack_" in repr(t)}
    left = {t for t in ours if not t.done()}
    if left:
        await asyncio.wait(left, timeout=1)
    assert not [t for t in left if not t.done()]
    gc.collect()
    assert not [w for w in recwarn if "never" in str(w.message)]
