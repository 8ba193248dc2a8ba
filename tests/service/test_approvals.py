"""Approvals and questions, from the model's call to the click in Slack and back."""

from __future__ import annotations

import json
import signal

import pytest
from anthropic_server import text, tool_call

FILE = """
instances:
  alpha:
    persona: {name: Alpha, emoji: ":owl:"}
    tools: [{module: tool-filesystem}, {module: tool-ask-user}]
    hooks: [{module: hooks-approval, config: {approvers: [owner]}}]
  beta: {persona: {name: Beta, emoji: ":fox_face:"}}
workspace: {root: files}
store: sqlite:kept.db
"""
WRITE = {"path": "plan.md", "content": "# Plan\n- ship it\n"}


def last(body) -> str:
    """The text of the last message of a request, its parts joined."""
    content = body["messages"][-1]["content"]
    return json.dumps(content)


@pytest.fixture
def written(tmp_path):
    """Return the files that the agent has written, by name."""
    return lambda: {path.name: path.read_text() for path in (tmp_path / "files").rglob("*.md")}


@pytest.fixture
def serve(environment, model_env, config_file):
    """Serve the instances of `FILE`."""
    return lambda: environment.serving("--config", str(config_file(FILE)), **model_env)


async def asked(slack, environment, root, text="Allow write_file?"):
    return await slack.until(lambda _: environment.found(root, text))


async def test_a_call_waits_for_its_approval_and_then_runs(serve, slack, environment, model, written):
    ana = slack.as_person("ana")
    async with serve() as service:
        await service.says("service.ready")
        model.reply(tool_call("write_file", WRITE))
        root = await ana.say("general", "@alpha plan it")
        question = await asked(slack, environment, root)
        shown = json.dumps(question.blocks)
        assert all(part in shown for part in ("+# Plan", "+- ship it", "It changes or deletes data"))
        assert written() == {}
        await slack.as_person("ben").click("general", question.ts, "request_choose_0")
        await slack.until(lambda ws: any("You may not answer this" in w.text for w in ws.whispers(question.channel)))
        assert written() == {}
        await ana.click("general", question.ts, "request_choose_0")
        await slack.until(lambda _: environment.said(root)[-1:] == ["fine"])
        assert written() == {"plan.md": WRITE["content"]}
        settled = await slack.until(
            lambda _: (
                m
                if (m := environment.found(root, "Allow write_file?")) and "allowed it" in json.dumps(m.blocks)
                else None
            )
        )
        assert "actions" not in [block["type"] for block in settled.blocks]
        assert await service.ended(signal.SIGTERM) == 0


async def test_an_approval_survives_kills_and_runs_once(serve, slack, environment, model, written):
    ana = slack.as_person("ana")
    async with serve() as service:
        await service.says("service.ready")
        model.reply(text("I write it."), tool_call("write_file", WRITE))
        root = await ana.say("general", "@alpha plan it")
        question = await asked(slack, environment, root)
        assert await service.ended(signal.SIGKILL) == -signal.SIGKILL
    async with serve() as service:
        await service.says("run.taken_over")
        await slack.until(lambda ws: ws.bot_online)
        assert written() == {}
        await ana.click("general", question.ts, "request_choose_0")
        await slack.until(lambda _: environment.said(root)[-1:] == ["fine"])
        assert written() == {"plan.md": WRITE["content"]}
        assert sum("Allow write_file?" in said for said in environment.said(root)) == 1
        assert "outcome is unknown" not in last(model.bodies[-1])
        assert await service.ended(signal.SIGTERM) == 0
