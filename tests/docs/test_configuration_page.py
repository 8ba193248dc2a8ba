from __future__ import annotations

import re

from connector.setup import BOT_EVENTS, BOT_SCOPES
from service.administration.reload import LIVE_KEYS
from service.config.config import Environment, load_config
from service.config.slack import SlackConfig
from service.sessions.mount_plan import find_problems, mount_plan


async def test_the_example_file_is_valid(page, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    (tmp_path / "notes").mkdir()
    (tmp_path / "agents.yaml").write_text(page.blocks("yaml")[0])
    config = load_config(tmp_path / "agents.yaml")
    assert config.store.get_secret_value() == f"sqlite:{tmp_path}/conversations.db"
    assert config.slack.users == {"U012AB3CD"}
    (instance,) = config.instances.values()
    assert await find_problems(mount_plan(instance, "provider-demo", tmp_path)) == []


def test_the_tables_list_the_scopes_and_events_of_the_manifest(page):
    for heading, needs in (("scope", BOT_SCOPES), ("event", BOT_EVENTS)):
        rows = page.text.partition(f"| {heading} | purpose |")[2].partition("\n\n")[0].splitlines()[2:]
        assert rows == [f"| `{need.name}` | {need.purpose} | {need.without or '**required**'} |" for need in needs]


def test_the_table_lists_every_environment_variable(page):
    table = page.text.partition("## Environment")[2].partition("## The file")[0]
    listed = set(re.findall(r"^\| (`\w+`)", table, re.MULTILINE))
    assert {f"`{name.upper()}`" for name in Environment.model_fields} <= listed


def test_the_page_on_administration_tells_which_keys_need_a_restart(page):
    table = (page.path.parent / "administration.md").read_text()
    row = re.search(r"^\| `slack`: (.*) \| `slack`: (.*) \|$", table, re.MULTILINE)
    live, restart = (set(re.findall(r"`(\w+)`", cell)) for cell in row.groups())
    assert live == {key.removeprefix("slack.") for key in LIVE_KEYS if key.startswith("slack.")}
    assert live | restart == set(SlackConfig.model_fields)


def test_the_example_file_has_every_key_of_the_slack_section(page):
    section = page.blocks("yaml")[0].partition("slack:")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\w+):", section, re.MULTILINE) == list(SlackConfig.model_fields)
