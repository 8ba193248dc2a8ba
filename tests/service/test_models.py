"""The command `!model`: people choose among the models of an agent, for a thread."""

from __future__ import annotations

import signal

import pytest
from anthropic_server import Failure, message, text
from model_scripts import TestThread

from connector.setup import manifest
from local_slack import LocalSlack

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
    tools: []
    providers:
      - {{module: provider-anthropic, name: strong, config: {{model: claude-strong}}}}
      - {{module: provider-anthropic, name: quick, config: {{model: claude-quick}}}}
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


async def test_a_thread_keeps_the_model_that_people_choose_over_a_kill(serve, slack, environment, model):
    model.otherwise = lambda _: message(text("fine"))
    thread = TestThread(slack, environment)

    async def answered(count, words):
        await thread.say(words)
        await slack.until(lambda _: environment.said(thread.root).count("fine") == count)

    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        await thread.say("!model")
        await thread.until_said("Models: `strong` (current), `quick`.")
        await thread.say("!model R&amp;D")
        await thread.until_said("I know no model `R&amp;D`. Models: `strong`")
        await thread.say("!model Quick")
        await thread.until_said("the model quick answers in this thread")
        await answered(2, "again")
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await service.says("service.ready")
        await answered(3, "and again")
        await thread.say("!model default")
        await thread.until_said("the model strong answers in this thread")
        await answered(4, "and once more")
        assert [body["model"] for body in model.bodies] == [
            "claude-strong",
            "claude-quick",
            "claude-quick",
            "claude-strong",
        ]
        assert await service.ended(signal.SIGTERM) == 0


async def test_the_next_model_of_the_list_answers_if_the_first_one_cannot(serve, slack, environment, model):
    model.otherwise = lambda body: Failure(401) if body["model"] == "claude-strong" else message(text("fine"))
    thread = TestThread(slack, environment)
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        assert environment.said(thread.root)[-1] == "fine"
        assert [body["model"] for body in model.bodies][-1] == "claude-quick"
        model.otherwise = lambda _: message(text("fine"), usage={"cache_read_input_tokens": 70})
        await thread.say("again")
        await slack.until(lambda _: environment.said(thread.root).count("fine") == 2)
        await thread.say("!cost")
        await thread.until_whispered("Its latest run: 80 tokens read (70 from the cache)")
        assert await service.ended(signal.SIGTERM) == 0
