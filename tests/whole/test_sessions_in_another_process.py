"""The agents run in a process of their own: whichever side dies, each message is read once and answered once."""

from __future__ import annotations

import asyncio

import pytest
from anthropic_server import Gate, message, text, tool_call
from scenario import ENVELOPE, EYES, Scenario, scenario

UNKNOWN = (
    "🔁 I was interrupted and have resumed. Outcome unknown: Running the tests. "
    "Check whether it is done before you ask for it again."
)
AWAY = "Waiting for the process of the agent…"


@pytest.fixture
async def there(tmp_path):
    """One service with SQLite, and the process of its agents."""
    async with scenario(tmp_path, "sqlite", remote=True) as there:
        await there.start(there.replicas.each[0])
        yield there


async def run_tests(there: Scenario) -> None:
    """Start a run whose tool is running."""
    there.model.reply(tool_call("run_tests", {}))
    await there.say("@alpha check it")
    await there.tests.reached.wait()
    await there.sees("Running the tests")


async def test_a_run_is_steered_edited_and_answers(there: Scenario):
    await run_tests(there)
    stays, changes, goes = [await there.say(words) for words in ("this stays", "this changes", "this goes")]
    for ts in (stays, changes, goes):
        await there.sees_mark(ts, ENVELOPE)
    await there.ana.edit("general", changes, "this has changed")
    await there.ana.delete("general", goes)
    await there.slack.until(lambda _: not there.board.outstanding)
    there.model.reply(text("12 of 40."))
    urgent = await there.say("!how far are you")
    await there.sees("12 of 40.")
    await there.sees_mark(urgent, EYES)
    there.model.reply(text("All passed."))
    there.tests.open()
    assert await there.final_texts() == ["12 of 40.", "All passed."]
    read = str(there.model.bodies[1]["messages"])
    assert [words in read for words in ("this stays", "this has changed", "this changes", "this goes")] == [
        True,
        True,
        False,
        False,
    ]


async def test_a_stop_ends_the_run(there: Scenario):
    await run_tests(there)
    await there.say("stop")
    assert await there.final_texts() == ["🛑 Stopped by Ana. Outcome unknown: Running the tests."]


async def test_after_the_process_of_the_agents_is_killed_the_run_resumes_once_it_is_back(there: Scenario):
    silent = Gate()
    await run_tests(there)
    steered = await there.say("and this")
    await there.sees_mark(steered, ENVELOPE)
    await there.replicas.sessions.kill()
    await there.sees(AWAY)
    late = await there.say("and that")
    there.model.reply(silent, text("I do not know."))
    await there.replicas.sessions.start()
    await silent.reached.wait()
    silent.open()
    assert await there.final_texts() == [UNKNOWN, "I do not know."]
    for ts in (steered, late):
        await there.sees_mark(ts, EYES)
    read = str(there.model.bodies[-1]["messages"])
    assert [read.count(words) for words in ("check it", "and this", "and that")] == [1, 1, 1]
    assert there.tests.calls == 1


async def test_after_the_service_is_killed_the_next_one_resumes_the_run(there: Scenario):
    silent = Gate()
    await run_tests(there)
    steered = await there.say("and this")
    await there.sees_mark(steered, ENVELOPE)
    there.board.choose(None)
    await there.replicas.each[0].kill()
    there.model.reply(silent, text("I do not know."))
    await there.start(there.replicas.each[0])
    await silent.reached.wait()
    silent.open()
    assert await there.final_texts() == [UNKNOWN, "I do not know."]
    await there.sees_mark(steered, EYES)
    read = str(there.model.bodies[-1]["messages"])
    assert [read.count(words) for words in ("check it", "and this")] == [1, 1]


async def test_a_new_version_of_the_agents_continues_where_the_old_one_was(there: Scenario):
    silent = Gate()
    await run_tests(there)
    ending = asyncio.create_task(there.replicas.sessions.terminate())
    await there.replicas.sessions.serving.says("sessions.stopping")
    there.tests.open()
    assert await ending == 0
    there.model.reply(silent, text("All passed."))
    await there.replicas.sessions.start()
    await silent.reached.wait()
    silent.open()
    assert await there.final_texts() == ["All passed."]
    assert "all passed" in str(there.model.bodies[-1]["messages"][-1])
    assert there.tests.calls == 1


async def test_a_message_before_the_agents_are_there_waits_for_them(there: Scenario):
    await there.replicas.sessions.kill()
    there.model.otherwise = lambda _: message(text("Here I am."))
    await there.say("@alpha are you there?")
    await there.sees(AWAY)
    await there.replicas.sessions.start()
    assert await there.final_texts() == ["Here I am."]
    assert len(there.model.requests) == 1


async def test_a_stop_while_the_agents_are_gone_applies_once_they_are_back(there: Scenario):
    await run_tests(there)
    await there.replicas.sessions.kill()
    await there.sees(AWAY)
    await there.say("stop")
    await there.sees("Stopping")
    await there.replicas.sessions.start()
    stopped = "🛑 Stopped by Ana. Outcome unknown: Running the tests."
    assert [each for each in await there.final_texts() if each != UNKNOWN] == [stopped]
    assert len(there.model.requests) == 1


async def test_a_shutdown_does_not_wait_for_agents_that_are_gone(there: Scenario):
    await run_tests(there)
    await there.replicas.sessions.kill()
    await there.sees(AWAY)
    assert await there.replicas.each[0].terminate(within_s=8) == 0
    there.model.otherwise = lambda _: message(text("I do not know."))
    await there.start(there.replicas.each[0])
    assert await there.final_texts() == [UNKNOWN, "I do not know."]
