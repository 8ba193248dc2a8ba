from __future__ import annotations

import json

import pytest
from recipe_sessions import RecipeSession, Rules, ran, recipe

from orchestrator_interactive import Injection
from orchestrator_interactive.interactions import InteractionStack


def scored(*scores):
    """Answer judges with these scores in turn, and all others with their instruction."""
    left = list(scores)

    def answer(instruction):
        if instruction.startswith("Judge how well"):
            return json.dumps({"score": left.pop(0), "comment": "Name sources."})
        return f"done: {instruction}"

    return answer


def failing(times, text="no answer"):
    """Fail this often, and then answer."""
    left = [text] * times

    def answer(instruction):
        if left:
            raise ValueError(left.pop())
        return f"done: {instruction}"

    return answer


ASK = {"id": "ask", "agent": "writer", "instruction": "Write."}
JUDGED = (ASK, {"id": "check", "judge": "ask", "agent": "critic", "retries": 1})


async def test_outputs_are_passed_on_from_inputs_over_steps_to_the_report():
    made = recipe(
        "{id: first, agent: writer, instruction: 'About {{ inputs.topic }}', output: draft}",
        "{id: second, tool: look, arguments: {text: '{{ draft }}!', nested: ['{{ inputs.count + 1 }}']}}",
        inputs={"topic": {}, "count": {"type": "integer", "default": 1}},
        report="{{ steps.second.output }}",
    )
    session, report = await ran(made, inputs={"topic": "tea"})
    assert report == "done: done: About tea!"
    assert session.arguments(await session.world.rows())["second"] == {"text": "done: About tea!", "nested": [2]}


async def test_a_loop_runs_so_many_items_at_once_and_keeps_their_order():
    made = recipe("{id: each, for_each: [a, b, c], parallel: 2, agent: x, instruction: '{{ index }} {{ item }}'}")
    session, report = await ran(made)
    answers = [row for row in await session.world.rows() if row["role"] == "assistant"]
    assert [len(session.arguments([row])) for row in answers[:-1]] == [2, 1]
    assert "done: 1 a\ndone: 2 b\ndone: 3 c" in report


@pytest.mark.parametrize(
    ("items", "seen"),
    [("{{ steps.ask.json.files }}", ["a", "b"]), ("a\n\nb", ["a", "b"]), ("[1, 2]", [1, 2]), ("{{ [] }}", [])],
)
async def test_a_loop_takes_its_items_from_json_lines_and_lists(items, seen):
    look = {"id": "look", "for_each": items, "tool": "look", "arguments": {"text": "{{ item }}"}}
    rules = Rules(lambda given: '{"files": ["a", "b"]}' if given == "Write." else given)
    session, _ = await ran(recipe(ASK, look), rules=rules)
    found = session.arguments(await session.world.rows())
    assert [given["text"] for name, given in found.items() if name.startswith("look")] == seen


@pytest.mark.parametrize(("when", "runs"), [("{{ 1 > 2 }}", False), ("no", False), ("{{ steps.ask.output }}", True)])
async def test_a_step_runs_only_under_its_condition(when, runs):
    session, report = await ran(recipe(ASK, {"id": "more", "when": when, "tool": "look"}))
    assert ("more" in session.world.done) is runs
    assert f"**more** ({'done' if runs else 'skipped'})" in report


@pytest.mark.parametrize(("times", "ids"), [(1, ["ask", "ask-a2"]), (3, ["ask", "ask-a2", "ask-a3"])])
async def test_a_failed_call_is_repeated_as_often_as_the_step_says(times, ids):
    session, report = await ran(recipe({**ASK, "retries": 2}, "{id: end, tool: look}"), rules=Rules(failing(times)))
    assert session.world.done[: len(ids)] == ids
    assert ("Step 'ask' failed: " in report) is ("end" not in session.world.done) is (times == 3)


async def test_a_recipe_continues_after_a_failure_that_it_allows():
    made = recipe({**ASK, "on_failure": "continue"}, report="{{ steps.ask.status }}: {{ steps.ask.error }}")
    _, report = await ran(made, rules=Rules(failing(1)))
    assert report.startswith("failed:")
    assert "no answer" in report


@pytest.mark.parametrize(("decision", "goes_on"), [(0, True), (1, False)])
async def test_people_decide_whether_a_recipe_goes_on(decision, goes_on):
    made = recipe("{id: gate, approval: 'Publish {{ 1 + 1 }}?'}", "{id: end, tool: look}")
    session, report = await ran(made, rules=Rules(decision=decision))
    assert session.arguments(await session.world.rows())["gate"]["question"] == "Publish 2?"
    assert ("end" in session.world.done) is goes_on
    assert ("Step 'gate' was not approved: Ana answered: Deny" in report) is not goes_on


@pytest.mark.parametrize("at_least", [0.7, "{{ 0.7 if steps.ask.output else 1 }}"])
async def test_a_low_score_runs_the_judged_step_again_with_the_comment(at_least):
    judge = {**JUDGED[1], "at_least": at_least}
    session, report = await ran(recipe(ASK, judge, report="{{ steps.check.score }}"), rules=Rules(scored(0.2, 0.9)))
    assert report == "0.9"
    again = session.arguments(await session.world.rows())["ask-r2"]["instruction"]
    assert again.startswith("Write.\n")
    assert "Name sources." in again
    assert again.endswith("done: Write.")


@pytest.mark.parametrize(
    ("rules", "said"),
    [(Rules(scored(0.1, 0.2)), "The score of 'ask' is 0.2. Name sources."), (Rules(), "It gave no score.")],
)
async def test_an_answer_that_no_judge_accepts_ends_the_recipe(rules, said):
    _, report = await ran(recipe(*JUDGED, "{id: end, tool: look}"), rules=rules)
    assert f"Step 'check' failed: {said}" in report


async def test_the_log_has_the_score_of_a_judge_as_its_reward():
    session, _ = await ran(recipe(*JUDGED), rules=Rules(scored(0.8)))
    entries = InteractionStack(session.world.store, "c", "a").iter_last_n(100)
    states = [entry.state async for entry in entries]
    rewards = {each.tool_call_id: each.reward for each in states if hasattr(each, "reward")}
    assert (rewards["check"], rewards["ask"]) == (0.8, None)


async def test_a_worker_is_started_and_the_recipe_goes_on_although_a_response_is_forced():
    made = recipe(
        "{id: far, worker: 'Look', instruction: 'Search {{ inputs.x }}'}", ASK, inputs={"x": {"default": "y"}}
    )
    session, report = await ran(made)
    assert session.arguments(await session.world.rows())["far"] == {"task": "Search y", "title": "Look"}
    assert session.world.done == ["far", "ask"]
    assert report.startswith("**The recipe trial is done.**")


async def test_a_run_that_reached_its_limit_says_so_and_goes_on_with_the_next_message():
    session, report = await ran(recipe(ASK, "{id: end, tool: look}"), loop={"max_iterations": 1})
    assert "has reached a limit" in report
    assert (await session.run("Go on.", "second")).startswith("**The recipe trial is done.**")
    assert session.world.done == ["ask", "end"]


async def test_an_agent_reads_messages_of_people_and_the_report_has_the_rest():
    made = recipe("{id: first, tool: look}", ASK, "{id: last, tool: look}")
    session = RecipeSession(made)
    await session.begin()
    offer = session.session.coordinator.get_capability("orchestrator.inject_message")
    texts = {"first": "also tea", "last": "and cake"}
    session.on_call = lambda name: offer(Injection(texts[name], id=name)) if name in texts else None
    report = await session.run()
    told = session.arguments(await session.world.rows())["ask"]["instruction"]
    assert told == "Write.\n\nMessages that people wrote in the meantime:\n- also tea"
    assert report.endswith("No agent has read these messages:\n- and cake")
    assert await session.run("Thanks", "later") == (
        "The recipe trial has ended; its report is above.\n\nNo agent has read these messages:\n- Thanks"
    )


@pytest.mark.parametrize("score", ["", "\n\n[Reflection on x: 0.5 of 1. So\nso.]"])
async def test_an_output_has_no_notes_of_the_tool_that_asks_the_agent(score):
    rules = Rules(lambda _: f"Tea.{score}\n\n[x, session_id x-1a, success]")
    _, report = await ran(recipe(ASK, report="{{ steps.ask.output }}"), rules=rules)
    assert report == "Tea."


async def test_the_steps_are_a_to_do_list():
    session, _ = await ran(recipe({**ASK, "title": "Write it"}, "{id: end, tool: look}"))
    lists = [data["args"]["items"] for data in session.progress.of("tool:start") if data["tool"] == "todo"]
    assert [[each["status"] for each in items] for items in lists] == [
        ["in_progress", "pending"],
        ["done", "in_progress"],
    ]
    assert lists[0][0]["text"] == "Write it"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{id: x, tool: missing}", "needs the tool `missing`"),
        ("{id: x, tool: look, arguments: {text: '{{ inputs.n.z }}'}}", "Step 'x': The template fails"),
        ("{id: x, tool: look, for_each: '{{ inputs.n }}'}", "'for_each' gives no list"),
    ],
)
async def test_what_cannot_run_ends_the_recipe_with_the_reason(step, said):
    _, report = await ran(recipe(ASK, step, inputs={"n": {"type": "integer", "default": 1}}))
    assert said in report
    assert "**ask** (done)\ndone: Write." in report


async def test_without_delegates_the_agents_of_the_registry_are_asked():
    session, _ = await ran(recipe(ASK), tools=("call_agent",))
    assert session.arguments(await session.world.rows()) == {"ask": {"agent_id": "writer", "message": "Write."}}
