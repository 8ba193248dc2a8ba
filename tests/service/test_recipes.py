"""Recipes as workers, from the command in a thread or the call of a model to the report, over a kill."""

from __future__ import annotations

import json
import re
import signal

import pytest
from anthropic_server import Gate, text, tool_call
from model_scripts import Scripts, TestThread, told

APPROVE, DENY = "request_choose_0", "request_choose_1"
FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools:
      - module: tool-filesystem
      - module: tool-delegate
      - module: tool-todo
      - module: tool-ask-user
      - {{module: tool-recipes, config: {{recipes: recipes}}}}
    agents:
      researcher: {{description: Finds sources., instructions: You research.}}
workspace: {{root: files}}
lease_s: 2
store: "{store}"
"""
TRIAL = """
name: trial
inputs: {topic: {}}
steps:
  - {id: save, title: Save it, tool: write_file, arguments: {path: a.md, content: "{{ inputs.topic }}"}}
  - {id: ask, title: Ask, for_each: [x, y], agent: researcher, instruction: "Find {{ item }} of {{ inputs.topic }}."}
  - {id: gate, approval: "Publish it?"}
report: "It is {{ steps.ask.output | join(' and ') }}."
"""


@pytest.fixture
def serve(environment, model_env, config_file, url, tmp_path):
    path = config_file(FILE.format(store=url))
    (path.parent / "recipes").mkdir()
    (path.parent / "recipes" / "trial.yaml").write_text(TRIAL)
    return lambda: environment.serving("--config", str(path), **model_env)


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
def thread(slack, environment):
    return TestThread(slack, environment)


async def test_a_person_runs_a_recipe_that_survives_a_kill_and_reports_once(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [text("Hello.")])
    scripts.of("research", [text("red")], [gate])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("Hello.")
        await thread.say("!recipe run trial topic=“green tea”")
        await thread.until_said("The recipe trial has started as worker w")
        await gate.reached.wait()
        await thread.until_shown('"title": "Save it", "status": "complete"', '"title": "Ask", "status": "in_progress"')
        await service.ended(signal.SIGKILL)
    gate.open()
    scripts.of("research", [text("blue")])
    async with serve() as service:
        asked = await thread.until_said("Publish it?")
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await service.says("service.ready")
        await thread.ana.click("general", asked.ts, APPROVE)
        await thread.until_said("): It is ")
        await thread.say("what is it?")
        await thread.answered()
        said = thread.environment.said(thread.root)
        assert sum("): It is " in each for each in said) == 1
        assert sum("has started as worker" in each for each in said) == 1
        report = next(each for each in said if "): It is " in each)
        assert sorted(re.findall("red|blue", report)) == ["blue", "red"]
        assert json.dumps(scripts.asked("lead")[-1]["messages"]).count("It is ") == 1
        assert {told(body).count("green tea") for body in scripts.asked("research")} == {1}
        assert await service.ended(signal.SIGTERM) == 0


async def test_an_agent_runs_a_recipe_and_a_denial_ends_it(serve, thread, scripts):
    run = {"operation": "run", "recipe": "trial", "inputs": {"topic": "tea"}}
    scripts.of("lead", [tool_call("recipes", run)], [text("It is at work.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("It is at work.")
        asked = await thread.until_said("Publish it?")
        await thread.ana.click("general", asked.ts, DENY)
        await thread.until_said("Step 'gate' was not approved: Ana answered: Deny")
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_rewind_names_the_recipes_that_it_leaves_behind(serve, thread, scripts):
    run = {"operation": "run", "recipe": "trial", "inputs": {"topic": "tea"}}
    scripts.of("lead", [tool_call("recipes", {"operation": "list"})], [tool_call("recipes", run)], [text("At work.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("At work.")
        await thread.say("!rewind")
        await thread.until_said("Its workers continue: Recipe trial.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_people_follow_and_cancel_a_recipe_and_read_why_a_command_is_refused(serve, thread, scripts):
    gate = Gate()
    scripts.of("research", [gate], [gate])
    async with serve() as service:
        await thread.begin(service, "@alpha !recipe list")
        await thread.until_said("trial topic=…")
        for words, answer in (
            ("run trial", "Input 'topic' is missing."),
            ("run R&amp;D", "There is no recipe 'R&amp;D'; there are: code_review, research, trial, weekly_summary."),
            ("run trial 'topic", "A quotation mark has no partner."),
            ("status", "No recipe has been started here."),
            ("pause", "Write `!recipe run NAME key=value …`"),
        ):
            await thread.say(f"!recipe {words}")
            await thread.until_said(answer)
        await thread.say("!recipe run trial topic=x")
        worker = re.search(r"worker (w\w+)\.", (await thread.until_said("has started as worker")).text)[1]
        await gate.reached.wait()
        await thread.say("!recipe status")
        await thread.until_said(f"{worker}: Recipe trial, at work")
        await thread.say(f"!recipe cancel {worker}")
        await thread.until_said(f"I am stopping Recipe trial ({worker}).")
        await thread.until_said("🛑 Stopped by Ana.")
        await thread.say(f"!recipe status {worker}")
        await thread.until_said(f"{worker}: Recipe trial, cancelled")
        await thread.say(f"!recipe cancel {worker}")
        await thread.until_said(f"Recipe trial ({worker}) has ended already: cancelled.")
        assert await service.ended(signal.SIGTERM) == 0
