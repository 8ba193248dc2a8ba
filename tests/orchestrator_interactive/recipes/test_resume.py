"""A recipe whose process dies at any commit of its log continues with the same report."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from agents import faults
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killed_runs import PROMPT, SharedState, SnapshotStore
from recipe_sessions import RecipeSession, Rules, recipe

from orchestrator_interactive import Injection
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.loop.tool_results import STILL_RUNNING
from orchestrator_interactive.transcript.rows import delivered_ids_in

KILLED = """
import asyncio, sys
from recipe_sessions import RecipeSession, recipe
from orchestrator_interactive.interactions.stores import open_store

async def main():
    session = RecipeSession(recipe(*sys.argv[2:]))
    session.on_call = lambda name: print(name, flush=True)
    session.hold["s1"] = asyncio.Event()
    await session.begin(await open_store(sys.argv[1]))
    await session.run()

asyncio.run(main())
"""


def steps_of(draw):
    """Draw the steps of a recipe: agents, tools, loops, conditions, gates and judges."""
    steps = []
    for number in range(draw(st.integers(1, 4))):
        name = f"s{number}"
        before = f" {{{{ steps.s{number - 1}.status }}}}" if number else ""
        text = draw(st.sampled_from(["plain", "fails once", "fails always"]))
        common = {
            "id": name,
            "retries": draw(st.integers(0, 1)),
            "on_failure": draw(st.sampled_from(["stop", "continue"])),
            "when": draw(st.sampled_from([None, "{{ 1 }}", "no"])),
        }
        match draw(st.sampled_from(["agent", "tool", "loop", "gate", "judge"])):
            case "agent":
                steps.append({**common, "agent": "x", "instruction": text + before})
            case "tool":
                steps.append({**common, "tool": "look", "arguments": {"text": text + before}})
            case "loop":
                more = {"for_each": ["a", "b", "c"], "parallel": draw(st.integers(1, 3))}
                steps.append({**common, **more, "agent": "x", "instruction": f"{text} {{{{ item }}}}"})
            case "gate":
                steps.append({"id": name, "approval": "On?", "when": common["when"]})
            case "judge":
                steps.append({**common, "agent": "x", "instruction": f"plain{before}"})
                score = draw(st.sampled_from([0.2, 0.9]))
                judge = {"judge": name, "agent": "x", "criteria": f"score {score}", "retries": draw(st.integers(0, 1))}
                steps.append({"id": f"j{number}", **judge, "on_failure": common["on_failure"]})
    return recipe(*steps, inputs={})


class World:
    """Agents whose answers depend on the call only: a call that is repeated gets the same answer."""

    def __init__(self, made, decision):
        self.made, self.decision = made, decision

    def session(self, world=None):
        rules = Rules(decision=self.decision)
        session = RecipeSession(self.made, rules=rules, **({} if world is None else {"world": world}))
        current = [""]
        session.on_call = lambda call_id: current.__setitem__(0, call_id)

        def answer(instruction):
            if "score " in instruction and instruction.startswith("Judge how well"):
                return json.dumps({"score": float(instruction.partition("score ")[2][:3]), "comment": "so"})
            if "fails always" in instruction or ("fails once" in instruction and "-a2" not in current[0]):
                raise ValueError("no")
            return f"done: {instruction}"

        rules.agent = answer
        return session


async def finish(session, store=None):
    """Run a recipe, or resume it from the log; return the report."""
    await session.begin(store)
    rows = await session.session.coordinator.get("context").get_messages()
    has_begun = any(PROMPT.id in delivered_ids_in(row) for row in rows)
    return await (session.resume() if has_begun else session.run(message_id=PROMPT.id))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
async def test_a_recipe_that_is_killed_at_any_commit_reports_the_same(data):
    world = World(steps_of(data.draw), data.draw(st.integers(0, 1)))
    first = world.session()
    store = SnapshotStore(first.world)
    report = await finish(first, store)
    for picture in store.pictures:
        again = world.session(picture)
        assert await finish(again) == report
        rows = await picture.rows()
        assert faults(rows) == []
        # The tools are marked repeatable: only a call that was running when the process died is made again.
        ids = list(again.arguments(rows))
        assert max(Counter(ids).values(), default=1) == 1
        assert set(picture.done) == set(ids)
        assert max(Counter(picture.done).values(), default=0) <= 2


@pytest.mark.parametrize(("repeatable", "times"), [(False, 1), (True, 2)])
async def test_a_call_of_unknown_outcome_is_made_again_only_if_its_step_is_marked_repeatable(repeatable, times):
    step = {"id": "pay", "tool": "look", "repeatable": repeatable}
    first = RecipeSession(recipe(step), rules=Rules(repeatable=False))
    store = SnapshotStore(first.world)
    await finish(first, store)
    running = next(each for each in store.pictures if each.done == ["pay"])
    again = RecipeSession(recipe(step), running, rules=Rules(repeatable=False))
    report = await finish(again)
    assert running.done == ["pay", "pay-a2"][:times]
    assert ("The step is not marked repeatable." in report) is not repeatable


async def test_a_call_that_ends_each_process_is_given_up():
    world = SharedState()
    for number in range(5):
        session = RecipeSession(
            recipe({"id": "pay", "tool": "look", "repeatable": True}), world, Rules(repeatable=False)
        )
        store = SnapshotStore(world)
        report = await finish(session, store)
        world = next((each for each in store.pictures if len(each.done) > number), world)
    assert world.done == ["pay", "pay-a2", "pay-a3", "pay-a4"]
    assert "Step 'pay' failed: The process ended" in report


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_stopped_recipe_continues_with_the_next_message_and_repeats_no_effect(tmp_path, immediate):
    store = await open_store(f"sqlite:{tmp_path}/log.db")
    made = recipe(*(f"{{id: s{number}, tool: look}}" for number in range(3)))
    first = RecipeSession(made)

    def stop(name):
        token = first.session.coordinator.cancellation
        if name == "s1":
            token.request_immediate() if immediate else token.request_graceful()

    first.on_call = stop
    if immediate:
        first.hold["s1"] = asyncio.Event()
    await finish(first, store)
    await first.session.cleanup()
    second = RecipeSession(made, first.world)
    await second.begin(store)
    assert (await second.run("Go on", "second")).startswith("**The recipe trial is done.**")
    assert second.world.done == ["s0", "s1-a2" if immediate else "s1", "s2"]
    await second.session.cleanup()
    await store.aclose()


async def test_a_recipe_whose_process_is_killed_goes_on_in_another_one(tmp_path):
    steps, url = [f"{{id: s{number}, tool: look}}" for number in range(3)], f"sqlite:{tmp_path}/log.db"
    path = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", KILLED, url, *steps]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | path) as process:  # noqa: ASYNC220, S603
        assert [process.stdout.readline().strip() for _ in range(2)] == ["s0", "s1"]
        process.kill()
    store = await open_store(url)
    session = RecipeSession(recipe(*steps))
    await session.begin(store)
    assert (await session.resume()).startswith("**The recipe trial is done.**")
    assert session.world.done == ["s1", "s2"]
    await session.session.cleanup()
    await store.aclose()


async def test_an_urgent_message_reaches_the_next_agent_and_the_calls_before_it_go_on():
    slow = "{id: slow, tool: look, arguments: {text: x}}"
    session = RecipeSession(recipe(slow, "{id: ask, agent: x, instruction: '{{ steps.slow.output }}'}"))
    await session.begin()
    offer = session.session.coordinator.get_capability("orchestrator.inject_message")
    session.on_call = lambda name: offer(Injection("!hurry", id="m")) if name == "slow" else None
    held = session.hold["slow"] = asyncio.Event()

    async def release(event, data):
        if event == "thinking" and data["iteration"] == 2:
            held.set()

    session.progress = release
    await session.run()
    rows = await session.world.rows()
    assert any(row["content"] == STILL_RUNNING for row in rows)
    assert (
        session.arguments(rows)["ask"]["instruction"]
        == "done: x\n\nMessages that people wrote in the meantime:\n- !hurry"
    )
    assert session.world.done == ["slow", "ask"]
