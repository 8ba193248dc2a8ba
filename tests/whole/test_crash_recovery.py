"""A process that is killed in the middle of something leaves nothing undone, and nothing twice."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from anthropic_server import Gate, message, text, tool_call
from scenario import ENVELOPE, Scenario, StoreKind, reached_again, scenario

from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    Opened = Callable[..., AbstractAsyncContextManager[Scenario]]

UNKNOWN = (
    "🔁 I was interrupted and have resumed. Outcome unknown: Running the tests. "
    "Check whether it is done before you ask for it again."
)


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return partial(_opened, tmp_path)


@asynccontextmanager
async def _opened(folder: Path, store: StoreKind, **options: Any) -> AsyncIterator[Scenario]:
    """The first process serves: alone over SQLite; over Redis beside another one, which serves once that is dead."""
    async with scenario(folder, store, replicas=1 if store == "sqlite" else 2, **options) as there:
        first, *others = [await there.start(replica) for replica in there.replicas.each]
        if others:
            there.board.choose(first)
        yield there


async def kill(there: Scenario) -> None:
    """End the process at work at once; the next one is there when this returns."""
    there.board.choose(None)
    await there.replicas.each[0].kill()
    if len(there.replicas.each) == 1:
        await there.start(there.replicas.each[0])


def results(body: dict[str, Any]) -> list[tuple[bool, str]]:
    """The tool results in a request: whether each is an error, and what it says."""
    blocks = [block for m in body["messages"] for block in m["content"] if block["type"] == "tool_result"]
    return [(block.get("is_error", False), str(block["content"])) for block in blocks]


def prompts(body: dict[str, Any]) -> list[str]:
    return [b["text"] for m in body["messages"] if m["role"] == "user" for b in m["content"] if b["type"] == "text"]


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_a_tool_with_effects_is_not_run_again_and_model_and_people_hear_of_it(opened, store):
    async with opened(store) as there:
        there.model.reply(tool_call("run_tests", {}))
        await there.say("@alpha check it")
        await there.tests.reached.wait()
        status = await there.sees("Running the tests")
        there.model.reply(text("I do not know what came of the tests."))
        await kill(there)
        await there.sees("I do not know what came of the tests.")
        assert await there.told() == [UNKNOWN, "I do not know what came of the tests."]
        assert there.slack.workspace.message("general", status.ts) is None
        assert there.tests.calls == 1
        (is_error, said), *others = results(there.model.bodies[-1])
        assert is_error
        assert "outcome is unknown" in said
        assert not others
        assert prompts(there.model.bodies[-1]) == ["Ana (U0ANA): check it"]


async def test_people_hear_of_it_too_where_the_next_process_was_killed_before_it_could_tell_them(opened):
    silent, too_late = Gate(), Gate()
    async with opened("sqlite") as there:
        there.model.reply(silent, text("First answer."))
        await there.say("@alpha check it")
        await silent.reached.wait()
        await there.sees_mark(await there.say("and run the tests"), ENVELOPE)
        there.slack.faults.next("chat.postMessage", ErrorResponse("service_unavailable"), times=1000)
        there.model.reply(tool_call("run_tests", {}))
        silent.open()
        await there.tests.reached.wait()
        there.model.reply(too_late, text("too late"))
        await kill(there)
        await too_late.reached.wait()
        there.model.reply(text("Second answer."))
        await kill(there)
        there.slack.faults.clear()
        await there.sees("Second answer.")
        assert await there.told() == ["First answer.", UNKNOWN, "Second answer."]
        assert there.tests.calls == 1


async def test_whoever_has_stopped_it_hears_of_it_from_the_next_process(opened):
    async with opened("sqlite") as there:
        there.model.reply(tool_call("run_tests", {}))
        await there.say("@alpha check it")
        await there.tests.reached.wait()
        await there.sees("Running the tests")
        name = there.hold("users.info")
        await there.slack.as_person("ben").say("general", "stop", thread=there.root)
        await name.reached.wait()
        await there.tests.left.wait()
        await kill(there)
        name.set()
        assert await there.told() == ["🛑 Stopped by Ben. Outcome unknown: Running the tests."]


async def test_a_tool_without_effects_is_run_again_and_nobody_needs_to_know(opened):
    async with opened("redis", side_effect_free=True) as there:
        there.model.reply(tool_call("run_tests", {}))
        await there.say("@alpha check it")
        await there.tests.reached.wait()
        await there.sees("Running the tests")
        there.model.reply(text("All passed."))
        await kill(there)
        await reached_again(there.tests, 2)
        there.tests.open()
        await there.sees("All passed.")
        assert await there.told() == ["All passed."]
        assert results(there.model.bodies[-1]) == [(False, "all passed")]


async def test_an_answer_that_was_half_said_is_said_anew(opened):
    half = Gate()
    async with opened("sqlite") as there:
        there.model.reply(text("I begin ", half, "too late"))
        await there.say("@alpha check it")
        await half.reached.wait()
        status = await there.sees("⚙️")
        silent = Gate()
        there.model.reply(silent, text("I begin, and end."))
        await kill(there)
        await silent.reached.wait()
        assert (await there.sees("⚙️")).ts == status.ts, "it goes on with its status message"
        silent.open()
        assert await there.told() == ["I begin, and end."]
        assert prompts(there.model.bodies[-1]) == ["Ana (U0ANA): check it"]


@pytest.mark.parametrize(("store", "fault"), [("sqlite", DropAfterCall()), ("redis", DropBeforeCall())])
async def test_an_answer_whose_posting_is_in_doubt_is_posted_once(opened, store, fault):
    silent = Gate()
    async with opened(store) as there:
        there.model.reply(silent, text("All is well."))
        await there.say("@alpha check it")
        await silent.reached.wait()
        await there.sees("⚙️")
        there.slack.faults.next("chat.postMessage", fault, times=20)
        silent.open()
        await there.replicas.each[0].serving.says("slack.retry")
        there.slack.faults.clear()
        await kill(there)
        assert await there.told() == ["All is well."]
        assert len(there.model.requests) == 1


async def test_an_answer_that_is_on_its_way_is_posted_once(opened):
    silent = Gate()
    async with opened("redis") as there:
        there.model.reply(silent, text("All is well."))
        await there.say("@alpha check it")
        await silent.reached.wait()
        await there.sees("⚙️")
        posting = there.hold("chat.postMessage")
        silent.open()
        await posting.reached.wait()
        there.board.choose(None)
        await there.replicas.each[0].kill()
        posting.set()
        await there.sees("All is well.")
        if len(there.replicas.each) == 1:
            await there.start(there.replicas.each[0])
        assert await there.told() == ["All is well."]


@pytest.mark.parametrize("store", ["sqlite", "redis"])
async def test_a_message_that_was_taken_and_not_yet_written_down_is_read_once(opened, store):
    async with opened(store) as there:
        there.set_up.close()
        before = there.set_up.calls
        await there.say("@alpha check it")
        await reached_again(there.set_up, before + 1)
        steer = await there.say("and this")
        await there.sees_mark(steer, "incoming_envelope")
        there.set_up.open()
        there.model.reply(text("Both."))
        await kill(there)
        await there.sees("Both.")
        assert await there.told() == ["Both."]
        said = prompts(there.model.bodies[-1])
        assert said[0] == "Ana (U0ANA): check it"
        assert "Ana (U0ANA): and this" in said[1]
        assert len(said) == 2


async def test_what_people_write_while_nobody_serves_is_answered_when_somebody_does(opened):
    async with opened("sqlite") as there:
        there.model.reply(text("Hello."))
        await there.say("@alpha hello")
        assert await there.told() == ["Hello."]
        there.board.choose(None)
        for replica in there.replicas.each:
            await replica.kill()
        for words in ("one", "two"):
            await there.say(words)
        there.model.otherwise = lambda _: message(text("Here."))
        await there.start(there.replicas.each[0])
        await there.sees("Here.")
        await there.told()
        last = "\n".join(prompts(there.model.bodies[-1]))
        assert last.index("one") < last.index("two")
