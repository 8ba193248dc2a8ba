"""A budget in a whole service: the thread gets a notice at 75 percent, and a sentence when the budget is used up."""

from __future__ import annotations

import signal

import pytest
from anthropic_server import message, text
from model_scripts import Scripts, TestThread

from connector.setup import manifest
from local_slack import LocalSlack

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools: []
    hooks:
      - module: hooks-budget
        config:
          limits: [{{per: person, period: day, tokens: 1000}}]
          output_tokens: 200
          timezone: Europe/Berlin
workspace: {{root: files}}
store: "{store}"
lease_s: 2
"""


@pytest.fixture
async def slack():
    async with LocalSlack(manifest=manifest(["Alpha"], command="/alpha")) as slack:
        yield slack


@pytest.fixture
def serve(environment, model_env, config_file, url):
    path = str(config_file(FILE.format(store=url)))
    return lambda: environment.serving("--config", path, **model_env)


async def test_the_thread_gets_a_notice_at_75_percent_and_when_a_budget_is_used_up_over_a_kill(
    serve, slack, environment, model
):
    Scripts(model)
    thread = TestThread(slack, environment)
    async with serve() as service:
        model.otherwise = lambda _: message(text("First."), usage={"input_tokens": 800})
        await thread.begin(service)
        told = await thread.until_said("💰 75 % of the daily budget")
        assert "of the person who began this (1,000 tokens) is used: 80" in told.text
        assert "at 00:00 (Europe/Berlin)" in told.text
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await service.says("service.ready")
        await thread.say("@alpha and now?")
        await thread.until_said("The daily budget of the person who began this (1,000 tokens) is used up.")
        assert len(model.bodies) == 1
        assert sum("💰" in each for each in environment.said(thread.root)) == 1
        assert await service.ended(signal.SIGTERM) == 0
