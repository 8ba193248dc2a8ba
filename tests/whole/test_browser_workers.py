"""Work that outlives the answer, on the page: sub-agents, workers, recipes and schedules."""

from __future__ import annotations

import re

import pytest
from anthropic_server import Gate, text, tool_call
from model_scripts import Scripts
from playwright.async_api import expect

pytestmark = pytest.mark.browser

FILE = """
instances:
  alpha:
    persona: {name: Alpha, emoji: ":owl:"}
    instructions: You lead.
    tools:
      - tool-delegate
      - tool-dispatch-worker
      - tool-todo
      - tool-ask-user
      - tool-schedule
      - {module: tool-recipes, config: {recipes: trial.yaml}}
    agents:
      researcher: {description: Finds sources., instructions: You research.}
      writer: {description: Writes., instructions: You write.}
"""
TRIAL = """
name: trial
description: Compares two things.
inputs: {topic: {}}
steps:
  - id: ask
    title: Ask about each
    for_each: [price, speed]
    agent: researcher
    instruction: Find the {{ item }} of {{ inputs.topic }}.
  - {id: gate, title: Approval, approval: "Publish this?\\n\\n{{ steps.ask.output | join(' ') }}"}
report: "Published: {{ steps.ask.output | join(' and ') }}"
"""


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
async def page(open_page, environment, model, tmp_path):
    path = tmp_path / "agents.yaml"
    path.write_text(FILE)
    (tmp_path / "trial.yaml").write_text(TRIAL)
    async with environment.serving("--config", str(path), **model.env) as service:
        await service.says("service.ready")
        yield await open_page(environment.slack.url)


async def test_a_thread_shows_sub_agents_as_a_tree_and_a_worker_with_its_own_status_and_report(page, scripts):
    price, speed, working = Gate(), Gate(), Gate()
    tasks = [("researcher", "Find the prices of both stores"), ("writer", "Draft the comparison")]
    scripts.of(
        "lead",
        [tool_call("delegate", {"agent": agent, "instruction": task}) for agent, task in tasks],
        [tool_call("dispatch_worker", {"task": "Watch the build", "title": "Watch the build", "agent": "writer"})],
        [text("Both are compared. A worker watches the build.")],
    )
    scripts.of("research", [price, text("A costs 3.")])
    scripts.of("write", [speed, text("A is cheaper.")], [working, text("The build is **green**.")])
    await page.write(page.channel, "@alpha compare the two stores, and watch the build")
    await price.reached.wait()
    await speed.reached.wait()
    status = await page.see(page.thread, "↳ researcher: Thinking…")
    await expect(status).to_contain_text("↳ writer: Thinking…")
    await page.screenshot("sub-agents")
    price.open()
    speed.open()
    await page.see(page.thread, "A worker watches the build.")
    await working.reached.wait()
    status = await page.see(page.thread, "Watch the build (w")
    worker = re.search(r"\((w[0-9a-f]{6})\)", await status.inner_text())[1]
    await page.write(page.thread, "!workers")
    await page.see(page.thread, f"{worker} (writer) Watch the build: at work")
    await page.screenshot("worker")
    await page.write(page.thread, "!worker stop zzz")
    await page.see(page.thread, "zzz")
    working.open()
    await page.see(page.thread, "The build is green.")
    await page.screenshot("worker-report")


async def test_a_recipe_shows_its_steps_and_waits_for_an_approval(page, scripts):
    scripts.of("research", [text("The price is 3.")], [text("The speed is 9.")])
    await page.write(page.channel, "@alpha !recipe list")
    await page.see(page.thread, "trial")
    await page.write(page.thread, "!recipe run trail")
    await page.see(page.thread, "trail")
    await page.write(page.thread, "!recipe run trial")
    await page.see(page.thread, "Input 'topic' is missing. Write !recipe run trial topic=….")
    await page.write(page.thread, '!recipe run trial topic="the two stores"')
    question = await page.see(page.thread, "Publish this?")
    await expect(question).to_contain_text("The speed is 9.")
    await page.see(page.thread, "Ask about each")
    await page.screenshot("recipe")
    await page.by("action-request_choose_0", page.thread).click()
    await page.see(page.thread, "Published: The ")
    await page.screenshot("recipe-report")


async def test_schedules_are_listed_in_the_thread_and_revoked_at_home(page, scripts):
    await page.write(page.channel, "@alpha hello")
    await page.see(page.thread, "fine")
    for command, answer in {
        "!schedule": "There are no schedules here.",
        "!schedule tomorrow": "Write a time",
        "!schedule in 2 weeks look at the build again": "Sat",
        "!schedule 0 9 * * 1 summarise the week": "Next: Mon",
    }.items():
        await page.write(page.thread, command)
        if "weeks" not in command:
            await page.see(page.thread, answer)
    await page.write(page.thread, "!schedule")
    await expect(page.thread.get_by_text("look at the build again”.")).to_have_count(2)
    await page.screenshot("schedules")
    await page.by("dm-alpha").click()
    await page.by("tab-home").click()
    home = page.by("home")
    await expect(home).to_contain_text("summarise the week")
    await page.screenshot("home-schedules")
    await home.get_by_role("button", name="Revoke").first.click()
    await expect(home.get_by_role("button", name="Revoke")).to_have_count(1)
