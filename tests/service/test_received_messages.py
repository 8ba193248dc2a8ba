"""A service that reads threads from what events brought, because Slack lets its app read one page a minute."""

from __future__ import annotations

import json
import re
import signal

import pytest
from service_process import run_command

FILE = """
instances: {alpha: {persona: {name: Alpha, emoji: ":owl:"}}}
slack: {history: events}
workspace: {root: files}
store: sqlite:kept.db
"""


@pytest.fixture
def given(config_file):
    return config_file(FILE)


@pytest.fixture
def serve(agents_in, environment, model_env, given):
    return lambda: environment.serving("--config", str(given), **model_env)


def reads(slack, ts) -> list[dict]:
    """Return the calls that read this thread; posts of a killed process are looked up in theirs."""
    found = [each for each in slack.record if each.get("method") in {"conversations.replies", "conversations.history"}]
    return [each for each in found if ts in json.dumps(each)]


def kept(given) -> dict[str, str]:
    return {"AMPLIFIER_SLACK_STORE": f"sqlite:{given.parent}/kept.db"}


async def test_a_thread_is_read_without_a_call_also_after_a_kill(serve, slack, environment, model, given):
    ana, ben = slack.as_person("ana"), slack.as_person("ben")
    async with serve() as service:
        await service.says("service.ready")
        await slack.until(lambda ws: ws.bot_online)
        root = await ana.say("general", "the budget is 17 owls")
        reply = await ben.say("general", "make it 18", thread=root)
        secret = await ben.say("general", "my password is hunter2", thread=root)
        await ben.edit("general", reply, "make it 19 owls")
        await ben.delete("general", secret)
        await slack.as_person("chloe").say("random", "a message elsewhere")
        other = await ana.say("general", "@alpha hello")
        await slack.until(lambda _: environment.said(other)[-1:] == ["fine"])
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await service.says("service.ready")
        await slack.until(lambda ws: ws.bot_online)
        await ana.say("general", "@alpha how many?", thread=root)
        await slack.until(lambda _: environment.said(root)[-1:] == ["fine"])
        asked = json.dumps(model.bodies[-1])
        assert "the budget is 17 owls" in asked
        assert "make it 19 owls" in asked
        assert not re.search("make it 18|hunter2|elsewhere", asked)
        assert reads(slack, root) == []
        assert await service.ended(signal.SIGTERM) == 0

    person = slack.as_person("chloe").person.id, "--config", str(given)
    assert "a message elsewhere" in (await run_command("people", "export", *person, env=kept(given))).output
    erased = await run_command("people", "erase", "--yes", *person, env=kept(given))
    assert erased.code == 0, erased.output
    assert "a message elsewhere" not in (await run_command("people", "export", *person, env=kept(given))).output
