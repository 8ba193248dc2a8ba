from __future__ import annotations

import re
import shlex

from stored_conversations import StoredConversations

from connector.setup import BOT_EVENTS, BOT_SCOPES
from service.config.config import Environment, load_config
from service.config.slack import SlackConfig
from service.sessions.mount_plan import find_problems, mount_plan

PLACE = "T0TEAM:C0GENERAL:1732204800.000100"


async def test_the_example_file_is_valid(page, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    (tmp_path / "notes").mkdir()
    (tmp_path / "agents.yaml").write_text(page.blocks("yaml")[0])
    config = load_config(tmp_path / "agents.yaml")
    assert config.store.get_secret_value() == f"sqlite:{tmp_path}/conversations.db"
    assert config.slack.users == {"U012AB3CD"}
    (instance,) = config.instances.values()
    assert await find_problems(mount_plan(instance, "provider-demo", tmp_path)) == []


def test_the_commands_have_the_described_effect(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = StoredConversations(tmp_path / "kept.db")
    kept.talk(*(f"message {number}" for number in range(10)), place=PLACE)
    (block,) = (block for block in page.blocks("sh") if "conversations" in block)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(commands) == 8
    for program, group, *words in commands:
        assert (program, group) == ("amplifier-slack", "conversations")
        result = kept.run(*words)
        assert result.exit_code == 0, result.output
    assert kept.branches(PLACE) == {"try": 12, "main": 12, "branch-1": 20}
    assert "message 5" in (tmp_path / "page.html").read_text()


def test_the_tables_list_the_scopes_and_events_of_the_manifest(page):
    for heading, needs in (("scope", BOT_SCOPES), ("event", BOT_EVENTS)):
        rows = page.text.partition(f"| {heading} | purpose |")[2].partition("\n\n")[0].splitlines()[2:]
        assert rows == [f"| `{need.name}` | {need.purpose} | {need.without or '**required**'} |" for need in needs]


def test_the_table_lists_every_environment_variable(page):
    table = page.text.partition("## Environment")[2].partition("## The file")[0]
    listed = set(re.findall(r"^\| (`\w+`)", table, re.MULTILINE))
    assert {f"`{name.upper()}`" for name in Environment.model_fields} <= listed


def test_the_example_file_has_every_key_of_the_slack_section(page):
    section = page.blocks("yaml")[0].partition("slack:")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\w+):", section, re.MULTILINE) == list(SlackConfig.model_fields)
