"""What people edit and delete: in time it is as if it had never been otherwise, later the model is told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from takeover_threads import begun as begun_by
from takeover_threads import over

from connector.events import SlackMessage
from connector.protocols import InboxEntry
from connector.records.inbox import PendingMessage
from local_slack import Waits
from local_slack.delivery.delivery_faults import Lost
from service.runs.runs import StoredRuns
from service.store import open_run_store

CORRECTED = "(Correction of my earlier message. It now reads:)"
TAKEN_BACK = "(I have deleted my earlier message:)"


async def begun(scene, text="@alpha look"):
    ts = await scene.ana.say("general", text)
    return ts, await scene.sessions.next_run()


async def steered(scene, ts, run, text: str = "and this") -> str:
    steer = await scene.ana.say("general", text, thread=ts)
    await run.until(lambda r: [s.text for s in r.steers] == [text])
    return steer


async def all_taken(scene) -> None:
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)


async def test_a_message_that_the_loop_has_not_read_has_its_new_text(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await scene.ana.edit("general", steer, "no, that")
    await run.until(lambda r: [s.text for s in r.steers] == ["no, that"])
    await run.answer("ok")


async def test_a_message_that_the_loop_was_not_given_yet_has_its_new_text(scene):
    scene.sessions.hold_setup = asyncio.Event()
    ts = await scene.ana.say("general", "@alpha look")
    steer = await scene.ana.say("general", "and this", thread=ts)
    await scene.reacted("general", steer, "incoming_envelope")
    await scene.ana.edit("general", steer, "no, that")
    await all_taken(scene)
    scene.sessions.hold_setup.set()
    run = await scene.sessions.next_run()
    await run.until(lambda r: [s.text for s in r.steers] == ["no, that"])
    await run.answer("ok")


async def test_the_message_that_a_run_begins_with_has_its_new_text_until_it_has_begun(scene, hold):
    lookup = hold("users.info")
    ts = await scene.ana.say("general", "@alpha ask @chloe")
    await lookup.reached.wait()
    await scene.ana.edit("general", ts, "@alpha ask me")
    await all_taken(scene)
    lookup.set()
    assert (await scene.sessions.next_run()).prompt == "ask me"


async def test_a_message_that_the_model_has_is_corrected(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.edit("general", steer, "no, that")
    await run.until(lambda r: [s.text for s in r.steers[1:]] == [f"{CORRECTED} no, that"])
    await scene.ana.edit("general", ts, "@alpha look closely")
    await run.until(lambda r: [s.text for s in r.steers[2:]] == [f"{CORRECTED} look closely"])
    await run.read_steers()
    await run.answer("ok")
    await scene.quiet("general", ts)
    assert scene.sessions.idle


async def test_a_correction_while_nothing_runs_goes_with_the_next_message(scene):
    ts, run = await begun(scene)
    await run.answer("ok")
    await scene.quiet("general", ts)
    await scene.ana.edit("general", ts, "@alpha look closely")
    await all_taken(scene)
    assert scene.sessions.idle
    await scene.ana.say("general", "go on", thread=ts)
    run = await scene.sessions.next_run()
    await run.until(lambda r: len(r.steers) == 1)
    assert [run.prompt, run.steers[0].text] == [f"{CORRECTED} look closely", "go on"]


async def test_links_that_slack_unfurls_are_no_edit(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.edit("general", steer, "and this")
    await steered_after(scene, ts, run, "the next one")
    await run.answer("ok")


async def steered_after(scene, ts, run, text: str) -> None:
    """Nothing else came before this."""
    await all_taken(scene)
    before = len(run.steers)
    await scene.ana.say("general", text, thread=ts)
    await run.until(lambda r: len(r.steers) > before)
    assert [s.text for s in run.steers[before:]] == [text]


async def test_a_message_that_the_loop_has_not_read_is_taken_back(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await scene.ana.delete("general", steer)
    await run.until(lambda r: r.steers == [])
    await run.answer("ok")
    await scene.quiet("general", ts)
    assert scene.sessions.idle


async def test_a_message_that_waits_after_a_stop_is_taken_back(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("", status="cancelled")
    await scene.quiet("general", ts)
    await scene.ana.delete("general", steer)
    await all_taken(scene)
    await scene.ana.say("general", "go on", thread=ts)
    run = await scene.sessions.next_run()
    assert (run.prompt, run.steers) == ("go on", [])
    await run.answer("ok")


async def test_the_model_is_told_of_a_message_that_was_taken_back_when_it_had_it(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.delete("general", steer)
    await run.until(lambda r: [s.text for s in r.steers[1:]] == [f"{TAKEN_BACK} and this"])
    await run.read_steers()
    await run.answer("ok")


async def test_whoever_deletes_the_message_that_a_run_began_with_stops_it(scene):
    ts, run = await begun(scene)
    await scene.ana.say("general", "so that the thread stays", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    await scene.ana.delete("general", ts)
    await run.until(lambda r: r.stops == [False])
    await run.answer("", status="cancelled")
    await scene.slack.until(lambda _: scene.sessions.idle)


async def test_what_was_never_for_an_agent_may_change_as_it_likes(scene):
    ts, run = await begun(scene)
    other = await scene.ana.say("general", "@ben what do you think?", thread=ts)
    await scene.ana.edit("general", other, "what do you all think?")
    await scene.ana.delete("general", other)
    await steered_after(scene, ts, run, "the next one")
    await run.answer("ok")


async def test_what_turns_to_somebody_else_by_an_edit_is_taken_back(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run, "delete the staging db")
    await scene.ana.edit("general", steer, "@ben can you delete the staging db")
    await run.until(lambda r: r.steers == [])
    await scene.ana.delete("general", steer)
    await steered_after(scene, ts, run, "the next one")
    await run.answer("ok")


async def test_the_model_is_told_where_what_it_has_turns_to_somebody_else(scene):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.edit("general", steer, "@ben and this")
    await run.until(lambda r: [s.text for s in r.steers[1:]] == [f"{TAKEN_BACK} and this"])
    await scene.ana.edit("general", ts, "@ben look")
    await run.until(lambda r: r.stops == [False])
    await run.answer("", status="cancelled")


async def test_the_first_message_without_its_mention_is_for_the_agent_still(scene):
    ts, run = await begun(scene)
    await steered(scene, ts, run)
    await run.read_steers()
    await scene.ana.edit("general", ts, "look closely")
    await run.until(lambda r: [s.text for s in r.steers[1:]] == [f"{CORRECTED} look closely"])
    assert run.stops == []
    await run.read_steers()
    await run.answer("ok")


async def test_what_was_said_before_an_agent_was_called_may_change_as_it_likes(scene):
    root = await scene.ana.say("general", "the tests are flaky")
    reply = await scene.ana.say("general", "and teh docs are old", thread=root)
    await scene.ben.say("general", "@alpha look at the code", thread=root)
    run = await scene.sessions.next_run()
    await scene.ana.edit("general", reply, "and the docs are old")
    await scene.ana.edit("general", root, "the tests are very flaky")
    await scene.ana.delete("general", reply)
    await steered_after(scene, root, run, "the next one")
    await run.answer("ok")


async def test_an_edit_that_overtakes_its_message_is_that_message(scene):
    ts, run = await begun(scene)
    scene.slack.deliveries.next(Lost())
    steer = await scene.ana.say("general", "and thsi", thread=ts)
    await scene.ana.edit("general", steer, "and this")
    await run.until(lambda r: [s.text for s in r.steers] == ["and this"])
    await run.read_steers()
    await run.answer("ok")


async def test_an_edit_that_overtakes_its_message_is_that_message_where_the_first_one_is_gone_too(scene, hold):
    status = hold("chat.postMessage")
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await status.reached.wait()
    scene.slack.deliveries.next(Lost())
    steer = await scene.ana.say("general", "and thsi", thread=ts)
    await scene.ana.delete("general", ts)
    await run.until(lambda r: r.stops == [False])
    await scene.ana.edit("general", steer, "and this")
    await all_taken(scene)
    status.set()
    await run.answer("", status="cancelled")
    again = await scene.sessions.next_run()
    assert again.prompt == "and this"
    await again.answer("ok")


@pytest.mark.parametrize("is_read", [False, True])
async def test_what_says_stop_by_an_edit_is_taken_back_and_stops(scene, is_read):
    ts, run = await begun(scene)
    steer = await steered(scene, ts, run, "stp")
    if is_read:
        await run.read_steers()
    await scene.ana.edit("general", steer, "stop")
    await run.until(lambda r: r.stops == [False])
    assert [s.text for s in run.steers[:1]] == (["stp"] if is_read else [])
    await scene.ana.edit("general", steer, "stop!")
    await all_taken(scene)
    assert run.stops == [False]
    await run.answer("", status="cancelled")


async def test_the_message_that_a_run_began_with_says_stop_by_an_edit_and_stops_it_once(scene):
    ts, run = await begun(scene)
    await scene.ana.edit("general", ts, "@alpha stop")
    await run.until(lambda r: bool(r.stops))
    await all_taken(scene)
    assert run.stops == [False]
    await run.answer("", status="cancelled")


async def test_the_first_message_of_a_direct_message_to_which_somebody_replied_is_the_channels(scene):
    """Slack names its own thread with it then."""
    dm = await scene.ana.open_dm("alpha")
    ts = await scene.ana.say(dm, "do the work")
    run = await scene.sessions.next_run()
    await scene.ana.say(dm, "and in a thread", thread=ts)
    beside = await scene.sessions.next_run()
    await scene.ana.edit(dm, ts, "do the other work")
    await run.until(lambda r: [s.text for s in r.steers] == [f"{CORRECTED} do the other work"])
    await scene.ana.react(dm, ts, "x")
    await run.until(lambda r: r.stops == [False])
    await scene.ana.delete(dm, ts)
    await run.until(lambda r: r.stops == [False, True])
    assert (beside.stops, beside.steers) == ([], [])
    for each in (run, beside):
        await each.answer("", status="cancelled")


async def test_a_late_edit_overrides_none_that_the_process_before_has_told(slack, sessions, process, ana, admitted):
    async with process():
        ts, run = await begun_by(slack, ana, sessions)
        await ana.edit("general", ts, "@alpha look closely")
        await run.until(lambda r: len(r.steers) == 1)
        await run.read_steers()
    await admitted(ts, "look clsely", edited_ts=ts)
    hold = asyncio.Event()
    slack.faults.next("conversations.replies", Waits(hold), times=50)
    sessions.obedient = False
    async with process():
        run = await sessions.next_run()
        await ana.say("general", "go on", thread=ts)
        await run.until(lambda r: bool(r.steers))
        assert [s.text for s in run.steers] == ["go on"]
        slack.faults.clear()
        hold.set()
        await run.answer("ok")
        assert await over(slack, ts) == ["ok"]


@pytest.fixture
def admitted(slack, tmp_path):
    """An edit that some process has accepted, and nobody has acted on."""

    async def admitted(ts: str, text: str, edited_ts: str) -> None:
        channel = slack.channel("general").id
        message = SlackMessage("T0LOCAL", channel, ts, None, slack.person("ana").id, text, (), direct=False)
        inbound = PendingMessage(message, "alpha", text, f"{message.id}:edit:{edited_ts}", edited_ts=edited_ts)
        async with (
            aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store,
            StoredRuns(store, "a", 10) as runs,
        ):
            await runs.admit(message.place.conversation_id, InboxEntry(inbound.id, "edit", inbound.written()))

    return admitted
