"""For whom a worker acts: the people whose messages led to it, or, without a person, those in its thread."""

from __future__ import annotations

import json
import signal
import time
from functools import partial

import aiohttp
import pytest
from anthropic_server import text, tool_call
from model_scripts import Scripts, TestThread

from connector.inbound.http_server import signature_of

SECRET = "a secret of 16 or more"
FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools:
      - {{module: tool-filesystem}}
      - {{module: tool-dispatch-worker}}
      - {{module: tool-slack}}
      - {{module: tool-schedule}}
      - {{module: tool-recipes, config: {{recipes: recipes}}}}
    hooks: [hooks-approval]
    agents:
      researcher: {{description: Finds sources., instructions: You research.}}
workspace: {{root: files}}
store: sqlite:kept.db
triggers:
  listen: 127.0.0.1:{port}
  endpoints:
    ci: {{secret: "${{CI_SECRET}}", channel: C0GENERAL, instructions: Find the cause.}}
"""
REMIND = """
name: remind
inputs: {what: {}}
steps:
  - {id: remind, tool: schedule, arguments: {operation: add, when: in 2 weeks, text: "{{ inputs.what }}"}}
"""


@pytest.fixture
def serve(environment, model_env, config_file, free_port):
    path = config_file(FILE.format(port=free_port))
    (path.parent / "recipes").mkdir()
    (path.parent / "recipes" / "remind.yaml").write_text(REMIND)
    return lambda: environment.serving("--config", str(path), CI_SECRET=SECRET, **model_env)


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
def thread(slack, environment):
    return TestThread(slack, environment)


def dispatch(task):
    return tool_call("dispatch_worker", {"task": task, "title": "Find out", "agent": "researcher"})


async def test_a_worker_reads_slack_for_the_author_of_the_message_that_led_to_it(serve, thread, scripts):
    scripts.of("lead", [dispatch("sum up the channel")], [text("A worker is at it.")])
    scripts.of("research", [tool_call("slack_read", {"place": "here"})], [text("Done.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("): Done.")
        assert "These are messages of people and apps" in json.dumps(scripts.asked("research")[-1]["messages"][-1])
        assert await service.ended(signal.SIGTERM) == 0


async def test_people_in_the_thread_approve_what_the_worker_of_a_trigger_does(serve, thread, scripts, slack, free_port):
    scripts.of("lead", [dispatch("write it down")], [text("A worker is at it.")], [text("Welcome.")])
    scripts.of("research", [tool_call("write_file", {"path": "a.md", "content": "blue"})], [text("Written.")])
    async with serve() as service:
        await service.says("service.ready")
        raw, at = json.dumps({"branch": "main"}).encode(), str(int(time.time()))
        headers = {"X-Trigger-Timestamp": at, "X-Trigger-Signature": signature_of(SECRET, at, raw)}
        url = f"http://127.0.0.1:{free_port}/triggers/ci"
        async with aiohttp.ClientSession() as http:
            given = {**headers, "Content-Type": "application/json"}
            assert (await http.post(url, data=raw, headers=given)).status < 300
        channel = slack.channel("general").id
        thread.root = await slack.until(
            lambda ws: next((m.ts for m in ws.messages(channel) if m.text.startswith("🔔")), None)
        )
        asked = await thread.until_said("Allow write_file?")
        await thread.ana.open_home("home")
        await thread.say("@alpha I look, too")
        await thread.until_said("Welcome.")
        await slack.until(lambda _: thread.ana.home and "Allow write_file?" in json.dumps(thread.ana.home.content))
        await thread.ana.click("general", asked.ts, "request_choose_0")
        await thread.until_said("): Written.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_each_run_of_a_recipe_schedules_its_own_message(serve, thread, scripts):
    scripts.of("lead", [text("Hello.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_said("Hello.")
        said = partial(thread.environment.said, thread.root)
        for number, what in enumerate(("first", "second"), 1):
            await thread.say(f"!recipe run remind what={what}")
            await thread.slack.until(lambda _, n=number: sum("): *The recipe remind" in each for each in said()) == n)
        await thread.say("!schedule")
        await thread.slack.until(
            lambda ws: (
                any("first" in w.text and "second" in w.text for w in ws.whispers(thread.channel))
                or any("first" in each and "second" in each for each in said())
            )
        )
        assert await service.ended(signal.SIGTERM) == 0
