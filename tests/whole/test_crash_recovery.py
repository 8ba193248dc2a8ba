"""After a process is killed, the next one completes its work, and repeats nothing."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic_server import Gate, message, text, tool_call
from scenario import ENVELOPE, Scenario, reached_again
from service_process import BOTH_PLACES

from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse

UNKNOWN = (
    "🔁 I was interrupted and have resumed. Outcome unknown: Running the tests. "
    "Check whether it is done before you ask for it again."
)


@pytest.fixture
def serving(agents_in, serving):
    """Run the service with agents in its process, or in one of their own."""
    return serving


def results(body: dict[str, Any]) -> list[tuple[bool, str]]:
    """Return the tool results in a request: whether each is an error, and its text."""
    blocks = [block for m in body["messages"] for block in m["content"] if block["type"] == "tool_result"]
    return [(block.get("is_error", False), str(block["content"])) for block in blocks]


def prompts(body: dict[str, Any]) -> list[str]:
    return [b["text"] for m in body["messages"] if m["role"] == "user" for b in m["content"] if b["type"] == "text"]


async def run_tests(there: Scenario, ask: str = "@alpha check it") -> Any:
    """Start a run whose tool is running; return its status message."""
    there.model.reply(tool_call("run_tests", {}))
    await there.say(ask)
    await there.tests.reached.wait()
    return await there.sees("Running the tests")


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_a_tool_with_effects_is_not_repeated_and_its_unknown_outcome_is_reported(serving, store):
    async with serving(store) as there:
        status = await run_tests(there)
        there.model.reply(text("I do not know the result of the tests."))
        await there.kill()
        await there.sees("I do not know the result of the tests.")
        assert await there.final_texts() == [UNKNOWN, "I do not know the result of the tests."]
        assert there.slack.workspace.message("general", status.ts) is None
        assert there.tests.calls == 1
        ((is_error, result),) = results(there.model.bodies[-1])
        assert is_error
        assert "outcome is unknown" in result
        assert prompts(there.model.bodies[-1]) == ["Ana (U0ANA): check it"]


async def test_an_unknown_outcome_is_reported_though_the_next_process_is_killed_before_its_notice(serving):
    silent, too_late = Gate(), Gate()
    async with serving("sqlite") as there:
        there.model.reply(silent, text("First answer."))
        await there.say("@alpha check it")
        await silent.reached.wait()
        await there.sees_mark(await there.say("and run the tests"), ENVELOPE)
        there.slack.faults.next("chat.postMessage", ErrorResponse("service_unavailable"), times=1000)
        there.model.reply(tool_call("run_tests", {}))
        silent.open()
        await there.tests.reached.wait()
        there.model.reply(too_late, text("too late"))
        await there.kill()
        await too_late.reached.wait()
        there.model.reply(text("Second answer."))
        await there.kill()
        there.slack.faults.clear()
        await there.sees("Second answer.")
        assert await there.final_texts() == ["First answer.", UNKNOWN, "Second answer."]
        assert there.tests.calls == 1


@BOTH_PLACES
async def test_a_tool_without_effects_is_repeated_without_a_notice(serving):
    async with serving("redis", side_effect_free=True) as there:
        await run_tests(there)
        there.model.reply(text("All passed."))
        await there.kill()
        await reached_again(there.tests, 2)
        there.tests.open()
        await there.sees("All passed.")
        assert await there.final_texts() == ["All passed."]
        assert results(there.model.bodies[-1]) == [(False, "all passed")]


@BOTH_PLACES
async def test_an_interrupted_model_call_is_repeated_under_the_same_status_message(serving):
    half, silent = Gate(), Gate()
    async with serving("sqlite") as there:
        there.model.reply(text("I begin ", half, "too late"))
        await there.say("@alpha check it")
        await half.reached.wait()
        status = await there.sees("⚙️")
        there.model.reply(silent, text("I begin, and end."))
        await there.kill()
        await silent.reached.wait()
        assert (await there.sees("⚙️")).ts == status.ts
        silent.open()
        assert await there.final_texts() == ["I begin, and end."]
        assert prompts(there.model.bodies[-1]) == ["Ana (U0ANA): check it"]


@pytest.mark.parametrize(
    ("store", "fault"), [("sqlite", DropAfterCall()), ("redis", DropBeforeCall()), ("redis", None)]
)
async def test_an_answer_in_doubt_or_in_flight_is_posted_once(serving, store, fault):
    silent = Gate()
    async with serving(store) as there:
        there.model.reply(silent, text("All is well."))
        await there.say("@alpha check it")
        await silent.reached.wait()
        await there.sees("⚙️")
        if fault is not None:
            there.slack.faults.next("chat.postMessage", fault, times=20)
            silent.open()
            await there.replicas.each[0].serving.says("slack.retry")
            there.slack.faults.clear()
            await there.kill()
        else:
            post = there.hold("chat.postMessage")
            silent.open()
            await post.reached.wait()
            await there.kill()
            post.set()
        assert await there.final_texts() == ["All is well."]
        assert len(there.model.requests) == 1


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_an_accepted_message_that_was_not_delivered_is_read_once(serving, store):
    async with serving(store) as there:
        there.set_up.close()
        before = there.set_up.calls
        await there.say("@alpha check it")
        await reached_again(there.set_up, before + 1)
        await there.sees_mark(await there.say("and this"), ENVELOPE)
        there.set_up.open()
        there.model.reply(text("Both."))
        await there.kill()
        await there.sees("Both.")
        assert await there.final_texts() == ["Both."]
        first, second = prompts(there.model.bodies[-1])
        assert first == "Ana (U0ANA): check it"
        assert "Ana (U0ANA): and this" in second


async def test_messages_posted_while_no_process_runs_are_answered_by_the_next_one(serving):
    async with serving("sqlite") as there:
        there.model.reply(text("Hello."))
        await there.say("@alpha hello")
        assert await there.final_texts() == ["Hello."]
        there.board.choose(None)
        await there.replicas.each[0].kill()
        for words in ("one", "two"):
            await there.say(words)
        there.model.otherwise = lambda _: message(text("Here."))
        await there.start(there.replicas.each[0])
        await there.sees("Here.")
        await there.final_texts()
        last = "\n".join(prompts(there.model.bodies[-1]))
        assert last.index("one") < last.index("two")
