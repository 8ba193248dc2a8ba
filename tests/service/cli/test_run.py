from __future__ import annotations

import asyncio
import os
import socket
import sys

import pytest
from service_process import AMPLIFIER_SLACK, Ended, run_command

from local_slack import LocalSlack

TOKENS = {"SLACK_APP_TOKEN": "xapp-a", "SLACK_BOT_TOKEN": "xoxb-b"}


def one_line(ended: Ended, code: int) -> str:
    """The only thing that the command says, when it says one thing."""
    assert ended.code == code, ended.output
    errors = [line for line in ended.output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, ended.output
    assert "Traceback" not in ended.output
    return errors[0].removeprefix("Error: ")


@pytest.mark.parametrize("program", [(AMPLIFIER_SLACK,), (sys.executable, "-m", "service")], ids=["script", "package"])
async def test_it_is_a_program_and_a_package_that_can_be_started(program):
    env = {name: value for name, value in os.environ.items() if name not in TOKENS}
    process = await asyncio.create_subprocess_exec(*program, "run", env=env, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert one_line(Ended(process.returncode, said.decode()), 2).startswith("SLACK_APP_TOKEN is not set.")


@pytest.mark.parametrize("missing", sorted(TOKENS))
async def test_a_missing_token_is_named(missing):
    env = {name: value for name, value in TOKENS.items() if name != missing}
    assert one_line(await run_command("run", env=env), 2).startswith(f"{missing} is not set.")


async def test_a_token_of_the_wrong_kind_is_named():
    line = one_line(await run_command("run", env={**TOKENS, "SLACK_BOT_TOKEN": "xapp-b"}), 2)
    assert line == "SLACK_BOT_TOKEN does not begin with xoxb-: it is a different kind of token."


async def test_a_store_that_keeps_nothing_is_refused():
    line = one_line(await run_command("run", env={**TOKENS, "AMPLIFIER_SLACK_STORE": "memory:"}), 2)
    assert line.startswith("AMPLIFIER_SLACK_STORE: `memory:` is not persistent")


async def test_tokens_that_slack_does_not_accept_end_the_command(tmp_path):
    async with LocalSlack() as slack:
        env = {**TOKENS, "SLACK_API_URL": slack.api_url, "HOME": str(tmp_path)}
        line = one_line(await run_command("run", env=env), 1)
        assert line.startswith("Slack does not accept SLACK_BOT_TOKEN (invalid_auth).")
        env["SLACK_BOT_TOKEN"] = slack.bot_token
        line = one_line(await run_command("run", env=env), 1)
        assert line.startswith("Slack does not accept SLACK_APP_TOKEN (invalid_auth).")


async def test_an_unreachable_slack_ends_the_command(tmp_path):
    async with LocalSlack() as gone:
        env = {**TOKENS, "SLACK_API_URL": gone.api_url, "HOME": str(tmp_path)}
    line = one_line(await run_command("run", env=env), 1)
    assert line.startswith(f"Slack cannot be reached at {env['SLACK_API_URL']}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "instances: {a: {persona: {name: A, emoji: ':owl:', colour: red}}}",
            "instances.a.persona.colour: unknown key",
        ),
        ("instance: {}", "instance: unknown key; valid keys: instances, slack, workspace, store, limits, log, "),
        ("instances: {a: {persona: {name: A}}}", "instances.a.persona.emoji: is missing."),
        ("instances: {a: {persona: {name: A, emoji: owl}}}", "instances.a.persona.emoji: "),
        ("instances: {}", "instances: "),
        ("log: {level: loud}", "log.level: "),
        ("idle_evict_s: 0", "idle_evict_s: must be more than 0."),
        ("shutdown_grace_s: -1", "shutdown_grace_s: must be 0 or more."),
        ("shutdown_grace_s: .inf", "shutdown_grace_s: must be a number."),
        ("lease_s: 1.5", "lease_s: must be 2 or more."),
        ("lease_s: soon", "lease_s: must be a number."),
        ("workspace: {template: nowhere}", "workspace.template: the folder"),
        ("- a", "has no keys"),
        ("a: [", "is not valid YAML"),
        ("a: &a [*a]", "is nested more than 100 levels deep, or contains itself."),
        ("a: " + "[" * 900 + "]" * 900, "is nested too deeply."),
    ],
)
async def test_a_config_that_is_wrong_is_told_by_its_key(tmp_path, text, said):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert said in one_line(await run_command("run", "--config", str(path), env=TOKENS), 2)


async def test_a_config_that_is_not_there_is_told(tmp_path):
    line = one_line(await run_command("run", "--config", str(tmp_path / "no.yaml"), env=TOKENS), 2)
    assert line.endswith("cannot be read: No such file or directory. Check the path given to --config.")


@pytest.mark.parametrize("where", ["providers: [{module: M}]", "tools: [M]", "orchestrator: M", "context: M"])
async def test_an_unknown_module_is_told_with_the_modules_that_there_are(tmp_path, where):
    path = tmp_path / "config.yaml"
    entry = where.replace("M", "provider-nowhere")
    path.write_text(f"instances: {{a: {{persona: {{name: A, emoji: ':owl:'}}, {entry}}}}}")
    line = one_line(await run_command("run", "--config", str(path), env=TOKENS), 2)
    assert "There is no module 'provider-nowhere'. The plan has no `source` for it. Installed modules: " in line
    assert "provider-demo" in line


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("nowhere", "tools.0.source: "),
        ("git+https://host/module", "tools.0.source: must be a local path"),
    ],
)
async def test_a_source_that_leads_nowhere_is_told(tmp_path, source, told):
    path = tmp_path / "config.yaml"
    path.write_text(
        f"instances: {{a: {{persona: {{name: A, emoji: ':owl:'}}, tools: [{{module: t, source: {source}}}]}}}}"
    )
    assert f"instances.a.{told}" in one_line(await run_command("run", "--config", str(path), env=TOKENS), 2)


async def test_an_unknown_option_of_a_module_is_told(tmp_path):
    path = tmp_path / "config.yaml"
    loop = "{module: loop-interactive, config: {max: 3}}"
    path.write_text(f"instances: {{a: {{persona: {{name: A, emoji: ':owl:'}}, orchestrator: {loop}}}}}")
    line = one_line(await run_command("run", "--config", str(path), env=TOKENS), 2)
    assert "loop-interactive" in line
    assert "'max'" in line


async def test_the_provider_that_has_no_key_is_told(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("instances: {a: {persona: {name: A, emoji: ':owl:'}, providers: [provider-anthropic]}}")
    line = one_line(await run_command("run", "--config", str(path), env=TOKENS), 2)
    assert "set ANTHROPIC_API_KEY" in line


async def test_a_busy_port_of_the_local_slack_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "local_slack", "--port", port, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
    assert process.returncode == 1
    assert port in said.decode()
    assert "--port" in said.decode()
    assert "Traceback" not in said.decode()


async def test_help_and_version_work_without_any_configuration():
    assert (await run_command("--version")).output.startswith("amplifier-slack, version ")
    help_text = await run_command("run", "--help")
    assert help_text.code == 0
    assert "SLACK_APP_TOKEN" in help_text.output
