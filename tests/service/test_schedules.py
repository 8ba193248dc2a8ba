"""Schedules of a whole service: by command, tool and Home tab, over kills."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta

import pytest
from anthropic_server import text
from model_scripts import Scripts, TestThread

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools: [{{module: tool-schedule}}]
workspace: {{root: files}}
store: "{store}"
"""


@pytest.fixture
def serve(environment, model_env, config_file, url):
    path = str(config_file(FILE.format(store=url)))
    return lambda: environment.serving("--config", path, **model_env)


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
def thread(slack, environment):
    return TestThread(slack, environment)


def soon(seconds=2):
    return f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}Z"


async def test_a_command_schedules_a_message_that_begins_a_run_once(serve, thread, scripts):
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        scripts.of("lead", [text("I looked again.")])
        await thread.say(f"!schedule {soon()} look here again")
        await thread.until_said("removes it.")
        fired = await thread.until_said("⏰ Scheduled by Ana (s")
        assert "look here again" in fired.text
        await thread.until_said("I looked again.")
        assert "[Scheduled message s" in json.dumps(scripts.asked("lead")[-1]["messages"][-1])
        await thread.say("!schedule")
        await thread.until_said("There are no schedules here.")
        assert sum("look here again" in json.dumps(each["messages"][-1]) for each in scripts.asked("lead")) == 1
        assert await service.ended(signal.SIGTERM) == 0
