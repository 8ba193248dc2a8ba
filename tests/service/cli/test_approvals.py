"""`amplifier-slack approvals …` over a configuration and a store."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from service_process import run_command

from connector.protocols import PersonAnswer
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.sessions.people import AlwaysRules
from service.store import open_run_store

CONFIG = """
instances:
  alpha:
    persona: {name: Alpha, emoji: ":owl:"}
    hooks:
      - module: hooks-approval
        config:
          approvers: participants
          rules:
            - {tool: write_file, arguments: {path: "^secret"}, level: deny, name: no secrets}
            - {tool: "write_*", channel: C9, level: allow}
            - {tool: edit_file, person: U7, level: ask-two, approvers: [U1, U2]}
  beta: {persona: {name: Beta, emoji: ":fox_face:"}}
audit: {audit}
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG.replace("{audit}", f"{tmp_path}/audit.jsonl"))
    return str(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--tool", "write_file", "--input", "{path: plan.md, content: hi}"), 1, "+hi"),
        (("--tool", "write_file", "--input", "{path: plan.md, content: hi}"), 1, "ask: by default: it is destructive."),
        (("--tool", "write_file", "--input", '{"path": "secret/x"}'), 1, "deny: by no secrets."),
        (("--tool", "write_file", "--channel", "C9", "--input", "{path: a}"), 0, "allow: by rule 2, for write_*."),
        (("--tool", "edit_file", "--person", "U7"), 1, "ask-two: by rule 3, for edit_file. Two of these must allow it"),
        (("--tool", "edit_file", "--person", "U7"), 1, "within 3600 s: U1 or U2."),
        (("--tool", "read_file"), 0, "allow: by default: it has no side effects."),
        (("--tool", "todo"), 0, "allow: by default: it is not destructive."),
        (("--tool", "write_file", "--instance", "beta"), 0, "beta has no hooks-approval, so no one is asked."),
        (("--tool", "rm"), 2, "alpha has no tool 'rm'; it has: delete_file, edit_file"),
        (("--tool", "todo", "--instance", "owl"), 2, "There is no instance 'owl'; there are: alpha, beta."),
        (("--tool", "todo", "--input", "[1"), 2, "--input is neither YAML nor JSON"),
        (("--tool", "todo", "--conversation", "general"), 2, "--conversation is TEAM:CHANNEL:TS"),
        (("--tool", "todo", "--input", "[1]"), 2, "--input must be a mapping of arguments"),
    ],
)
async def test_check_says_what_would_be_asked_and_by_which_rule(config, arguments, code, said):
    done = await run_command("approvals", "check", "--config", config, *arguments)
    assert said in done.output
    assert done.code == code


async def test_rules_that_people_made_are_listed_and_revoked(config, tmp_path):
    key = Key("T1:C1:1700000000.000100", "alpha")
    url = f"sqlite:{tmp_path}/kept.db"
    async with aclosing(await open_run_store(url)) as store:
        await store.put_document("unrelated", "x", {})
        answer = PersonAnswer("click", (0,), ("U1",), ("Ana",), "", "conversation", 1_700_000_000.0)
        await AlwaysRules(retrying(store, StoreRetryPolicy())).add(key, "write_file", answer, "abc123")
    listed = await run_command("approvals", "list", "--config", config, "--store", url)
    assert "Nothing waits for an answer." in listed.output
    assert all(part in listed.output for part in ("abc123", "write_file", key.conversation_id, "U1"))
    checked = ("approvals", "check", "--config", config, "--tool", "write_file", "--input", "{path: plan.md}")
    here = await run_command(*checked, "--conversation", key.conversation_id, env={"AMPLIFIER_SLACK_STORE": url})
    assert (here.code, here.output.strip()) == (0, "allow: by always: abc123.")
    for elsewhere in ((), ("--conversation", "T1:C1:1700000009.000100")):
        asked = await run_command(*checked, *elsewhere, env={"AMPLIFIER_SLACK_STORE": url})
        assert (asked.code, asked.output.startswith("ask: by default")) == (1, True)
    revoked = await run_command("approvals", "revoke", "abc123", "--config", config, "--store", url)
    assert revoked.output.startswith("Revoked abc123.")
    assert '"rule.revoked"' in (tmp_path / "audit.jsonl").read_text()
    again = await run_command("approvals", "revoke", "abc123", "--config", config, "--store", url)
    assert (again.code, "There is no rule 'abc123'." in again.output) == (1, True)
    assert (
        "Nothing is always allowed."
        in (await run_command("approvals", "list", "--config", config, "--store", url)).output
    )
