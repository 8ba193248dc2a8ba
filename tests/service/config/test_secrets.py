from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import AnthropicServer, text, tool_call
from service_process import run_command
from stored_conversations import run

from local_slack import DropBeforeCall, ErrorResponse, ServerError
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import Environment, InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig, load_config
from service.config.secrets import secrets
from service.logging import hide_secrets
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

LEAKY = Path(__file__).parents[2] / "support" / "leaky_tool.py"
SECRET = "sk-ant-api03-abcdefghijklmnop"
TOKENS = {"SLACK_APP_TOKEN": "xapp-a", "SLACK_BOT_TOKEN": "xoxb-b"}
ONE = "instances: {a: {persona: {name: A, emoji: ':owl:'}}}"
ANTHROPIC = ONE.replace("}}}", "}, providers: [{module: provider-anthropic, config: CONFIG}]}}")


@pytest.mark.parametrize("form", ["human", "json"])
async def test_whatever_fails_no_token_stands_in_the_log(slack, stage, tmp_path, form):
    config = tmp_path / "config.yaml"
    config.write_text(f"{ONE}\nlog: {{level: debug, format: {form}}}\nworkspace: {{root: files}}")
    async with AnthropicServer() as model:
        model.fail(401, "authentication_error", f"invalid x-api-key: {SECRET}")
        env = {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": model.base_url}
        async with stage.serving("--config", str(config), **env) as service:
            await service.says("service.ready")
            slack.faults.next("users.info", ErrorResponse(f"refused:\n{slack.bot_token}"))
            slack.faults.next("reactions.add", DropBeforeCall())
            ts = await slack.as_person("ana").say("general", "@alpha look")
            await slack.until(lambda _: stage.found(ts, "does not accept our API key"))
            slack.socket_mode.drop()
            await slack.until(lambda ws: ws.bot_online)
            await service.says("run.failed")
            slack.faults.next("chat.delete", ServerError(500))
    assert "Traceback" in service.output, "an error was logged"
    for secret in (slack.bot_token, slack.app_token, SECRET):
        assert secret not in service.output


@pytest.mark.parametrize(
    "text",
    [
        ANTHROPIC.replace("CONFIG", SECRET),
        f"{ONE}\nANTHROPIC_API_KEY: {SECRET}",
        f"{ONE}\nslack: xoxb-123456-abcdef",
        f"instances: {{a: {{persona: {SECRET}}}}}",
        f"api_key: {SECRET}: x",
        ANTHROPIC.replace("CONFIG", f"{{api_key: {SECRET}, nonsense: 1}}"),
    ],
)
async def test_a_secret_in_a_wrong_config_is_not_repeated(tmp_path, text):
    config = tmp_path / "config.yaml"
    config.write_text(text)
    ended = await run_command("run", "--config", str(config), env=TOKENS)
    assert ended.code == 2, ended.output
    assert "Traceback" not in ended.output
    assert "abcdef" not in ended.output


@pytest.mark.parametrize("token", ["xoxb-secret\n", "xoxb-secret\r\nand-more", "xoxb-sécret"])
async def test_a_token_with_characters_that_no_token_has_is_one_clear_line(stage, token):
    ended = await run_command("run", env={**stage.env, "SLACK_BOT_TOKEN": token})
    assert ended.code in (1, 2), ended.output
    assert "Traceback" not in ended.output
    assert "SLACK_BOT_TOKEN" in ended.output
    assert "cret" not in ended.output.replace("secrets", "")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("token xoxb-1-a.", "token xoxb-…"),
        ("\\nxoxb-1-a", "\\nxoxb-…"),
        ("axapp-1-a", "axapp-…"),
        ("xoxe.xoxp-1-a", "xoxe.…"),
        ("(sk-ant-api03-x)", "(sk-ant-…)"),
        ("does not begin with xoxb-: it", "does not begin with xoxb-: it"),
        (
            "url='wss://wss-primary.slack.com/link/?ticket=a-b_c&app_id=1'",
            "url='wss://wss-primary.slack.com/link/?ticket=…&app_id=1'",
        ),
        ("url=ws%3A//a/%3Fticket%3Dabc", "url=ws%3A//a/%3Fticket%3D…"),
        ("url=ws%3A//a/%3Fticket%3dab%2Bc d", "url=ws%3A//a/%3Fticket%3d… d"),
        ('"wss://a/?ticket=a%2Bb+c/d==&app_id=1"', '"wss://a/?ticket=…&app_id=1"'),
        ('"wss://a/?ticket=a%2Bb+c/d=="', '"wss://a/?ticket=…"'),
        (r'"{\"url\": \"wss://a/?ticket=a+b\"}"', r'"{\"url\": \"wss://a/?ticket=…\"}"'),
        (r'"wss://a/?ticket\u003da/b\u0026app_id=1"', r'"wss://a/?ticket\u003d…\u0026app_id=1"'),
        ("the key of another kind!", "the … kind!"),
        ("short", "short"),
    ],
)
def test_what_looks_like_a_token_and_what_is_known_is_hidden(text, left):
    assert hide_secrets(text, ("key of another", "short")) == left


@pytest.mark.parametrize("form", [str, json.dumps, repr, lambda text: repr(json.dumps(text))])
def test_a_known_secret_is_hidden_in_every_form_that_logs_give_it(form):
    secret = "s\u00e9cret of 'two'\n\"lines\""
    assert "cret" not in hide_secrets(f"before {form(secret)} after", (secret,))


@pytest.mark.parametrize("form", ["human", "json"])
async def test_the_traceback_of_a_crash_shows_no_secret(form):
    program = (
        "from service.config.config import LogConfig\n"
        "from service.logging import configure_logging\n"
        f"configure_logging(LogConfig(format={form!r}), ('not to be read',))\n"
        f"raise RuntimeError('\\n{SECRET} not to be read')\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
    _, log = await process.communicate()
    assert process.returncode == 1
    assert "service.crashed" in log.decode()
    assert "RuntimeError" in log.decode()
    assert "abcdef" not in log.decode()
    assert "to be read" not in log.decode()


@pytest.mark.parametrize(("how", "keeps_examples"), [("raise", False), ("fail", False), ("return", True)])
async def test_no_model_and_nobody_in_a_thread_reads_a_secret_that_a_tool_tells(
    tmp_path, monkeypatch, how, keeps_examples
):
    tool = ModuleConfig(module="leaky_tool", source=str(LEAKY))
    instance = InstanceConfig(persona=PersonaConfig(name="A", emoji=":owl:"), tools=[tool])
    shown: list[str] = []

    async def watch(event: str, data: dict[str, Any]) -> None:
        shown.append(f"{event} {data}")

    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.reply(tool_call("leaky", {"how": how}))
        model.reply(text("fine"))
        async with InProcessSessionManager(
            {"a": instance},
            "provider-anthropic",
            Workspaces(WorkspaceConfig(root=tmp_path / "files")),
            MemoryStore(),
            secrets=("our-own-password",),
        ) as sessions:
            assert await sessions.execute("a", "T:C:1.0", "go", watch) == "fine"
        read = json.dumps(model.bodies[-1]["messages"])
    assert "…" in read.encode().decode("unicode_escape")
    assert "our-own" not in read
    assert ("xoxb-of-somebody" in read) is keeps_examples
    assert any(each.startswith("tool:progress") for each in shown)
    assert "our-own" not in "".join(shown)


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_child_processes_of_modules_inherit_no_secret_of_the_service(monkeypatch, tmp_path, command):
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, f"{name} of ours")
    config = tmp_path / "config.yaml"
    config.write_text("nonsense")
    assert run(command, "--config", str(config)).exit_code == 2
    assert not [name for name in os.environ if os.environ[name].endswith(" of ours")]


@pytest.mark.parametrize(
    ("providers", "key"),
    [
        ([], "sk-ant-of-the-environment"),
        ([{"module": "provider-anthropic"}], "sk-ant-of-the-environment"),
        ([{"module": "provider-anthropic", "config": {"api_key": None}}], "sk-ant-of-the-environment"),
        ([{"module": "provider-anthropic", "config": {"api_key": "sk-ant-of-its-own"}}], "sk-ant-of-its-own"),
    ],
)
async def test_a_provider_has_the_key_although_the_environment_does_not(tmp_path, monkeypatch, providers, key):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-environment")
    environment = Environment.take_from_environ()
    instance = InstanceConfig.model_validate({"persona": {"name": "A", "emoji": ":owl:"}, "providers": providers})
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.reply(text("fine"))
        async with InProcessSessionManager(
            {"a": instance},
            "provider-anthropic",
            Workspaces(WorkspaceConfig(root=tmp_path / "files")),
            MemoryStore(),
            anthropic_api_key=environment.anthropic_key,
        ) as sessions:
            assert await sessions.execute("a", "T:C:1.0", "go") == "fine"
        assert any(value.endswith(key) for value in model.requests[-1].headers.values())


def test_the_keys_in_options_of_modules_are_known(tmp_path, monkeypatch):
    monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-a")
    monkeypatch.delenv("SLACK_BOT_TOKEN", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    path = tmp_path / "config.yaml"
    path.write_text(ANTHROPIC.replace("CONFIG", "{api_key: of another kind, model: claude, max_retries: 3}"))
    assert secrets(Environment.from_environ(), load_config(path)) == ("xapp-a", "of another kind")
