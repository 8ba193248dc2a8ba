"""Several replicas are one service: whoever gets an event, it reaches the run; whoever dies is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from anthropic_server import Gate, message, text, tool_call
from fault_injection.trial import Trial
from scenario import ENVELOPE, EYES, Scenario, scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Scenario]:
    """Two replicas: the first one has a run whose tool is at work, and the other one gets the events from now on."""
    async with scenario(tmp_path, "redis", replicas=2) as there:
        one, other = [await there.start(replica) for replica in there.replicas.each]
        there.board.choose(one)
        there.model.reply(tool_call("run_tests", {}))
        await there.say("@alpha check it")
        await there.tests.reached.wait()
        there.board.choose(other)
        yield there


def said(body: dict[str, Any]) -> str:
    return str(body["messages"])


async def test_a_steer_an_edit_and_a_deletion_reach_the_run_at_another_replica(there: Scenario):
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
    assert await there.told() == ["12 of 40.", "All passed."]
    read = said(there.model.bodies[1])
    assert "- Ana (U0ANA): this stays" in read
    assert "- Ana (U0ANA): this has changed" in read
    assert "this changes" not in read
    assert "this goes" not in read
    assert '"run.started"' not in there.replicas.each[1].log


async def test_a_word_stops_the_run_at_another_replica(there: Scenario):
    await there.say("stop")
    assert await there.told() == ["🛑 Stopped by Ana. Outcome unknown: Running the tests."]
    await there.tests.left.wait()


async def test_a_cross_on_the_status_stops_the_run_at_another_replica(there: Scenario):
    status = await there.sees("⚙️")
    await there.ana.react("general", status.ts, "x")
    assert await there.told() == ["🛑 Stopped by Ana. Outcome unknown: Running the tests."]


async def test_a_process_that_stood_still_for_longer_than_its_lease_says_and_writes_nothing_more(there: Scenario):
    one, other = there.replicas.each
    one.freeze()
    there.model.reply(text("I do not know what came of the tests."))
    await other.serving.says("run.taken_over")
    before = await there.told()
    assert before[-1] == "I do not know what came of the tests."
    there.tests.open()
    one.thaw()
    await one.serving.says("lease.lost")
    there.model.reply(text("Here."))
    await there.say("are you there?")
    await there.sees("Here.")
    assert await there.told() == [*before, "Here."]
    assert len(there.model.requests) == 3, "who lost the run asks nobody anything"


async def test_what_happens_while_the_store_is_away_is_kept_and_answered_when_it_is_back(there: Scenario):
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
    assert (await there.told())[-1] == "Here I am."
    assert "and this" in said(there.model.bodies[-1])
    assert "all passed" in said(there.model.bodies[-1])
    for replica in (one, other):
        await replica.serving.says("store.available")


async def test_a_run_that_begins_while_the_store_is_away_waits_for_it(tmp_path: Path):
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
        assert await there.told() == ["All is well."]


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
    ],
    ids=["two replicas over Redis", "one process over SQLite"],
)
@pytest.mark.timeout(120)
async def test_a_crowd_is_answered_once_and_in_order_whatever_dies(trial: Trial, tmp_path: Path):
    tally = await trial.run(tmp_path)
    assert tally.holds, f"{[sentence for sentence, _ in tally.wrong]}\n{tally.table()}"
