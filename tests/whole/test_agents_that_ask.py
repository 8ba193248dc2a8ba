"""Agents of the service's configuration that ask and judge each other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from anthropic_server import text, tool_call
from click.testing import CliRunner
from imitations import user_texts
from service_fixtures import serving_in_process

from service.cli.main import main
from service.config.config import load_config

PAGE = Path(__file__).parents[2] / "docs" / "interaction-stack.md"
TOOLS = """
from orchestrator_interactive.registries import tool, tool_registry
from orchestrator_interactive.registries.schemas import ToolConfig

@tool(ToolConfig("word_count", "Counts words."))
def word_count(text: str) -> int:
    return len(text.split())

tool_registry.register(word_count)
"""


async def test_an_agent_of_the_configuration_is_asked_and_its_answer_is_judged(
    environment, model, tmp_path, monkeypatch
):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    config = tmp_path / "agents.yaml"
    config.write_text(f"{example}store: sqlite:conversations.db\nworkspace: {{root: files}}\n")
    (tmp_path / "team_tools.py").write_text(TOOLS)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "editor.md").write_text("You are {{ agent_id }}, and shorten texts.")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("AMPLIFIER_SLACK_STORE", raising=False)

    model.reply(tool_call("call_agent", {"agent_id": "editor", "message": "Shorten: one two three"}))
    model.reply(tool_call("word_count", {"text": "one two three"}))
    model.reply(text("One, two."))
    model.reply(text('{"score": 0.5, "comment": "Too short."}'))
    model.reply(text("The editor says: One, two."))
    slack = environment.slack
    async with serving_in_process(slack, load_config(config)):
        root = await slack.as_person("ana").say("general", "@alpha ask the editor")
        await slack.until(lambda _: environment.found(root, "The editor says: One, two."))
        await slack.until(lambda ws: not ws.message("general", root).reacted("hourglass_flowing_sand"))
    assert "You are editor, and shorten texts." in str(model.bodies[1]["system"])
    assert user_texts(model.bodies[1]) == ["Shorten: one two three"]
    assert "One, two." in str(model.bodies[3]["messages"])
    for words, expected in (
        (["list", "--all"], "editor"),
        (["show", root], "Too short."),
        (["show", root], "of the run"),
    ):
        command = ["conversations", *words, "--config", str(config)]
        assert expected in (await asyncio.to_thread(CliRunner().invoke, main, command)).output
