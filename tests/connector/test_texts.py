from __future__ import annotations

import pytest

from connector import RunFailed

ONE_WAITS = "1 message has not been read yet. I will read it with your next message."


def tool(label: str | None, outcome: str) -> dict:
    return {"tool": "bash", "id": label or "0", "label": label, "outcome": outcome}


async def begun(scene):
    """A run with its status, and the hourglass on its message."""
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    return ts, run


async def stopped(scene, *tools: dict, waiting: int = 0) -> str:
    """What the thread says after a stop of a run with these tool calls, and so many messages that it did not read."""
    ts, run = await begun(scene)
    for number in range(waiting):
        await scene.ana.say("general", f"steer {number}", thread=ts)
    await run.until(lambda r: len(r.steers) == waiting)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("", status="cancelled", tools=list(tools))
    (text,) = [m.text for m in await scene.quiet("general", ts) if m.by_bot]
    return text


async def test_a_stop_says_what_is_done_what_is_not_and_what_nobody_knows(scene):
    done = [tool(f"Reading {n}.md", "finished") for n in range(3)]
    text = await stopped(
        scene, *done, tool("Writing notes.md", "cancelled"), tool("Running the tests", "unknown"), waiting=1
    )
    assert text == (
        "🛑 Stopped by Ana. 3 tool calls finished. Not done: Writing notes.md. Outcome unknown: Running the tests. "
        f"{ONE_WAITS}"
    )


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([tool("a", "finished")], " 1 tool call finished."),
        ([tool("a", "finished"), tool("b", "failed")], " 2 tool calls finished, 1 with an error."),
        ([tool(None, "unknown")], " Outcome unknown: Using bash."),
        ([tool("a", "cancelled"), tool("b", "cancelled")], " Not done: a and b."),
        ([tool(f"call {n}", "unknown") for n in range(6)], " Outcome unknown: call 0, call 1 and 4 more."),
        ([tool("<!channel>\nlook", "unknown")], " Outcome unknown: &lt;!channel&gt; look."),
        ([], ""),
    ],
)
async def test_the_tool_calls_of_a_stop_are_told_in_short(scene, tools, said):
    assert await stopped(scene, *tools) == f"🛑 Stopped by Ana.{said}"


async def test_a_stop_stays_short_whatever_the_tools_are_called(scene):
    labels = [f"{n} {'a very long label ' * 20}" for n in range(50)]
    tools = [tool(label, outcome) for label in labels for outcome in ("finished", "cancelled", "unknown")]
    text = await stopped(scene, *tools, waiting=7)
    assert len(text) < 400
    assert "50 tool calls finished" in text
    assert text.count("and 48 more") == 2
    assert "7 messages have not been read yet" in text


async def test_what_was_said_until_the_stop_comes_before_the_receipt(scene, of_bot):
    ts, run = await begun(scene)
    await scene.ana.say("general", "stop", thread=ts)
    await run.until(lambda r: bool(r.stops))
    await run.answer("I will begin with", status="cancelled", tools=[tool("Reading a.md", "finished")])
    assert of_bot(await scene.quiet("general", ts, posts=2)) == [
        "I will begin with …",
        "🛑 Stopped by Ana. 1 tool call finished.",
    ]


async def test_a_failed_run_names_the_tool_call_that_it_took_along(scene, of_bot):
    ts, run = await begun(scene)
    await run.fail(RunFailed("The model is away."), tools=[tool("Running the tests", "unknown")])
    text = "⚠️ The model is away. Outcome unknown: Running the tests."
    assert of_bot(await scene.quiet("general", ts)) == [text]


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("max_iterations", "I stopped here: this run has reached its step limit."),
        ("max_cost_usd", "I stopped here: this run has reached its cost limit."),
        ("max_tokens", "I stopped here: this run has reached its token limit."),
        ("max_duration_s", "I stopped here: this run has reached its time limit."),
        ("length", "My answer was cut off because it became too long."),
        ("of a kind that nobody knows", "I stopped before I was done."),
    ],
)
async def test_an_answer_that_is_not_the_last_word_says_why_and_how_to_go_on(scene, of_bot, reason, sentence):
    ts, run = await begun(scene)
    await run.answer("So far:", status="incomplete", reason=reason)
    texts = of_bot(await scene.quiet("general", ts, posts=2))
    assert texts == ["So far:", f"⏸️ {sentence} Write “continue” and I will carry on."]


@pytest.mark.parametrize(("detail", "more"), [("Too\nrisky.", " Its explanation: “Too risky.”"), (None, ""), ("", "")])
async def test_a_refusal_is_told_with_the_explanation_if_there_is_one(scene, of_bot, detail, more):
    ts, run = await begun(scene)
    await run.answer("", status="incomplete", reason="refusal", detail=detail)
    text = "⏸️ The model declined this request. Rephrase it, or start a new thread."
    assert of_bot(await scene.quiet("general", ts)) == [text + more]


async def test_a_denied_run_says_it_in_its_answer_and_nowhere_else(scene, of_bot):
    ts, run = await begun(scene)
    await run.answer("Operation denied: not today", status="incomplete", reason="denied")
    assert of_bot(await scene.quiet("general", ts)) == ["Operation denied: not today"]


async def test_an_incomplete_run_without_a_reason_is_told_by_its_answer(scene, of_bot):
    ts, run = await begun(scene)
    await run.answer("So far.", status="incomplete")
    assert of_bot(await scene.quiet("general", ts)) == ["So far."]
