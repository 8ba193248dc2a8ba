"""docs/configuration.md: its file can be served, and its commands do what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from stored_conversations import StoredConversations

from connector.setup.scopes import BOT_EVENTS, BOT_SCOPES
from service.config.config import Environment, load_config
from service.config.slack import SlackConfig
from service.sessions.mount_plan import mount_plan
from service.sessions.preflight import find_problems

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_file_can_be_served(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    (tmp_path / "notes").mkdir()
    path = tmp_path / "agents.yaml"
    path.write_text(blocks("yaml")[0])
    config = load_config(path)
    assert config.store.get_secret_value() == f"sqlite:{tmp_path}/conversations.db"
    assert config.slack.users == {"U012AB3CD"}
    (instance,) = config.instances.values()
    assert await find_problems(mount_plan(instance, "provider-demo", tmp_path)) == []


def test_the_commands_work_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = StoredConversations(tmp_path / "kept.db")
    kept.talk(*(f"message {number}" for number in range(10)), place="T0TEAM:C0GENERAL:1732204800.000100")
    (block,) = (block for block in blocks("sh") if "conversations" in block)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(commands) == 8
    for program, group, *words in commands:
        assert (program, group) == ("amplifier-slack", "conversations")
        result = kept.run(*words)
        assert result.exit_code == 0, result.output
    assert kept.branches("T0TEAM:C0GENERAL:1732204800.000100") == {"try": 12, "main": 12, "branch-1": 20}
    assert "message 5" in (tmp_path / "page.html").read_text()


def test_what_the_app_needs_is_told_as_the_manifest_asks_for_it():
    for heading, needs in (("scope", BOT_SCOPES), ("event", BOT_EVENTS)):
        rows = PAGE.partition(f"| {heading} | purpose |")[2].partition("\n\n")[0].splitlines()[2:]
        assert rows == [f"| `{need.name}` | {need.purpose} | {need.without or '**required**'} |" for need in needs]


def test_every_variable_is_told():
    table = PAGE.partition("## Environment")[2].partition("## The file")[0]
    assert {f"`{name.upper()}`" for name in Environment.model_fields} <= set(
        re.findall(r"^\| (`\w+`)", table, re.MULTILINE)
    )


def test_every_key_of_the_slack_section_is_in_the_file_of_the_page():
    section = blocks("yaml")[0].partition("slack:")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\w+):", section, re.MULTILINE) == list(SlackConfig.model_fields)
