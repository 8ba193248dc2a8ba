"""Several replicas serve one workspace: each event reaches the owner of its run, and each dead owner is replaced."""

from __future__ import annotations

import pytest
from anthropic_server import Gate, message, text, tool_call
from fault_injection.trial import Trial
from scenario import ENVELOPE, EYES, Scenario, scenario
from service_process import BOTH_PLACES


@pytest.fixture
async def there(agents_in, tmp_path):
    """Two replicas: the first one owns a run whose tool is running, the other one receives the events."""
    async with scenario(tmp_path, "redis", replicas=2) as there:
        one, other = [await there.start(replica) for replica in there.replicas.each]
        there.board.choose(one)
        there.model.reply(tool_call("run_tests", {}))
        await there.say("@alpha check it")
        await there.tests.reached.wait()
        there.board.choose(other)
        yield there


@BOTH_PLACES
async def test_a_message_an_edit_and_a_deletion_reach_the_run_at_another_replica(there: Scenario):
    stays, changes, goes = [await there.say(words) for words in ("this stays", "this changes", "this goes")]
    for ts in (stays, changes, goes):
        await there.sees_mark(ts, ENVELOPE)
    await there.ana.edit("general", changes, "this has changed")
    await there.ana.delete("general", goes)
    await there.slack.until(lambda _: not there.board.outstanding)
    urgent = await there.say("!how far are you")
    there.model.reply(text("12 of 40."))
    await there.sees("12 of 40.")
    await there.sees_mark(urgent, EYES)
    there.model.reply(text("All passed."))
    there.tests.open()
    assert await there.final_texts() == ["12 of 40.", "All passed."]
    read = str(there.model.bodies[1]["messages"])
    assert "- Ana (U0ANA): this stays" in read
    assert "- Ana (U0ANA): this has changed" in read
    assert "this changes" not in read
    assert "this goes" not in read
    assert '"run.started"' not in there.replicas.each[1].log


@pytest.mark.parametrize("how", ["word", "cross"])
async def test_a_stop_reaches_the_run_at_another_replica(there: Scenario, how):
    if how == "word":
        await there.say("stop")
    else:
        await there.ana.react("general", (await there.sees("⚙️")).ts, "x")
    assert await there.final_texts() == ["🛑 Stopped by Ana. Outcome unknown: Running the tests."]


@BOTH_PLACES
async def test_a_process_that_was_suspended_for_longer_than_its_lease_posts_and_stores_nothing(there: Scenario):
    one, other = there.replicas.each
    one.freeze()
    there.model.reply(text("I do not know the result of the tests."))
    await other.serving.says("run.taken_over")
    before = await there.final_texts()
    assert before[-1] == "I do not know the result of the tests."
    there.tests.open()
    one.thaw()
    await one.serving.says("lease.lost")
    there.model.reply(text("Here."))
    await there.say("are you there?")
    await there.sees("Here.")
    assert await there.final_texts() == [*before, "Here."]
    assert len(there.model.requests) == 3, "the former owner makes no request"


async def test_a_message_during_an_outage_of_the_store_is_answered_afterwards(there: Scenario):
    one, other = there.replicas.each
    assert there.redis is not None
    there.redis.kill()
    late = await there.say("and this")
    there.tests.open()
    for replica in (one, other):
        await replica.serving.says("store.unavailable")
    there.model.otherwise = lambda _: message(text("Here I am."))
    there.redis.start()
    await there.sees_mark(late, EYES)
    assert (await there.final_texts())[-1] == "Here I am."
    request = str(there.model.bodies[-1]["messages"])
    assert "and this" in request
    assert "all passed" in request
    for replica in (one, other):
        await replica.serving.says("store.available")


async def test_a_run_that_begins_during_an_outage_of_the_store_waits_for_its_end(tmp_path):
    silent = Gate()
    async with scenario(tmp_path, "redis") as there:
        (one,) = there.replicas.each
        await there.start(one)
        assert there.redis is not None
        there.redis.kill()
        await there.say("@alpha check it")
        await one.serving.says("store.unavailable")
        there.model.reply(silent, text("All is well."))
        there.redis.start()
        await silent.reached.wait()
        silent.open()
        assert await there.final_texts() == ["All is well."]


@pytest.mark.parametrize(
    "trial",
    [
        Trial(
            1,
            20,
            9,
            replicas=2,
            pace_s=1.5,
            harm_s=1.0,
            harms=("kill", "redis", "kill", "terminate"),
            close_within_s=40,
        ),
        Trial(1, 12, 8, replicas=1, pace_s=1.0, harm_s=1.0, harms=("kill", "kill", "terminate"), close_within_s=40),
        Trial(
            1,
            12,
            9,
            replicas=1,
            pace_s=1.0,
            harm_s=1.0,
            harms=("agents", "kill", "agents", "terminate"),
            close_within_s=40,
            remote=True,
        ),
    ],
    ids=["two replicas over Redis", "one process over SQLite", "agents in a process of their own"],
)
@pytest.mark.timeout(120)
async def test_every_message_of_many_people_is_answered_once_and_in_order_whatever_fails(trial, tmp_path):
    tally = await trial.run(tmp_path)
    assert tally.holds, f"{[sentence for sentence, _ in tally.wrong]}\n{tally.table()}"
