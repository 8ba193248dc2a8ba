from __future__ import annotations

import os
from pathlib import Path

import pytest
from anthropic_server import tool_call
from pydantic import SecretStr
from stored_conversations import run

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import Environment, InstanceConfig, WorkspaceConfig, load_config
from service.config.config_errors import ConfigError
from service.config.credentials import api_url, secrets, signing_secret, slack_access
from service.config.slack import SlackConfig
from service.logging import hide_secrets
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

TOOL_WITH_SECRETS = str(Path(__file__).parents[2] / "support" / "leaky_tool.py")
INSTANCE = "instances: {a: {persona: {name: A, emoji: ':owl:'}}}"


@pytest.fixture
def answer(tmp_path):
    """Let an instance with these fields answer one prompt."""

    async def answer(fields, on_progress=None, **options):
        instance = InstanceConfig.model_validate({"persona": {"name": "A", "emoji": ":owl:"}, **fields})
        workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
        async with InProcessSessionManager(
            {"a": instance}, "provider-anthropic", workspaces, MemoryStore(), **options
        ) as sessions:
            return await sessions.execute("a", "T:C:1.0", "go", on_progress)

    return answer


@pytest.mark.parametrize(("how", "keeps_examples"), [("raise", False), ("fail", False), ("return", True)])
async def test_secrets_in_a_tools_output_reach_neither_the_model_nor_the_thread(model, answer, how, keeps_examples):
    progress = []

    async def record(event, data):
        progress.append(f"{event} {data}")

    model.reply(tool_call("leaky", {"how": how}))
    tools = [{"module": "leaky_tool", "source": TOOL_WITH_SECRETS}]
    assert await answer({"tools": tools}, record, secrets=("our-own-password",)) == "fine"
    sent = str(model.bodies[-1]["messages"])
    assert "…" in sent
    assert "our-own" not in sent
    assert ("xoxb-of-somebody" in sent) is keeps_examples
    assert any(each.startswith("tool:progress") for each in progress)
    assert "our-own" not in "".join(progress)


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_child_processes_inherit_no_secret_of_the_service(monkeypatch, config_file, command):
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, f"{name} of ours")
    assert run(command, "--config", str(config_file("nonsense"))).exit_code == 2
    assert not [name for name in os.environ if os.environ[name].endswith(" of ours")]


@pytest.mark.parametrize(
    ("providers", "key"),
    [
        ([], "sk-ant-of-the-test"),
        ([{"module": "provider-anthropic"}], "sk-ant-of-the-test"),
        ([{"module": "provider-anthropic", "config": {"api_key": None}}], "sk-ant-of-the-test"),
        ([{"module": "provider-anthropic", "config": {"api_key": "sk-ant-of-its-own"}}], "sk-ant-of-its-own"),
    ],
)
async def test_a_provider_gets_the_key_that_was_removed_from_the_environment(model, answer, providers, key):
    environment = Environment.take_from_environ()
    assert await answer({"providers": providers}, provider_keys=environment.provider_keys) == "fine"
    assert any(value.endswith(key) for value in model.requests[-1].headers.values())


def test_secret_options_of_modules_and_tokens_are_secrets(config_file):
    options = "{api_key: of another kind, model: claude, max_retries: 3}"
    providers = f"providers: [{{module: provider-anthropic, config: {options}}}]"
    config = load_config(config_file(INSTANCE.replace("}}}", f"}}, {providers}}}}}")))
    environment = Environment(slack_app_token=SecretStr("xapp-a"), slack_signing_secret=SecretStr("of-the-signature"))
    assert secrets(environment, config) == ("xapp-a", "of-the-signature", "of another kind")


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("redis://:geheimgeheim@host:6379/0", ["geheimgeheim"]),
        ("rediss://user:geheim%40geheim@host/0", ["geheim%40geheim", "geheim@geheim"]),
        ("redis://:geheim/geheim@geheim@host/0", ["geheim/geheim@geheim"]),
        ("geheimgeheim", ["geheimgeheim"]),
        ("geheim-geheim:geheim", ["geheim-geheim:geheim", "geheim-geheim"]),
    ],
)
@pytest.mark.parametrize("source", ["variable", "file"])
def test_the_password_of_a_store_is_hidden(config_file, url, hidden, source):
    environment = Environment(amplifier_slack_store=SecretStr(url) if source == "variable" else None)
    config = load_config(config_file(f"store: '{url}'" if source == "file" else "log: {}"))
    known = secrets(environment, config)
    assert [hide_secrets(f"({secret})", known) for secret in hidden] == ["(…)"] * len(hidden)


@pytest.mark.parametrize("url", ["memory:", "sqlite:/var/lib/conversations.db", "redis://host.example:6379/0"])
def test_a_store_url_without_a_password_is_not_hidden(url):
    known = secrets(Environment(amplifier_slack_store=SecretStr(url)))
    assert hide_secrets(f"cannot use {url}", known) == f"cannot use {url}"


def tokens(*, slack_api_url="https://slack.com/api/", **given):
    given = {"slack_app_token": "xapp-1-A0-1-a", "slack_bot_token": "xoxb-1", **given}
    return Environment(
        slack_api_url=slack_api_url, **{name: value and SecretStr(value) for name, value in given.items()}
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slack_bot_token": None}, "SLACK_BOT_TOKEN is not set."),
        ({"slack_app_token": None}, "SLACK_APP_TOKEN is not set."),
        ({"slack_bot_token": "xapp-b"}, "SLACK_BOT_TOKEN does not begin with xoxb-: it is a different kind of token."),
        *(({"slack_bot_token": f"xoxb-{bad}"}, "SLACK_BOT_TOKEN has invalid") for bad in ("s\n", "s\r\nmore", "sé")),
    ],
)
def test_a_missing_or_invalid_token_is_a_config_error_that_does_not_repeat_it(given, message):
    with pytest.raises(ConfigError) as error:
        slack_access(SlackConfig(), tokens(**given))
    assert str(error.value).startswith(message)
    (token,) = given.values()
    assert token is None or token.strip() not in str(error.value)


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (None, "SLACK_SIGNING_SECRET is not set: `transport: http` requires it."),
        ("xoxb-1-of-the-test", "SLACK_SIGNING_SECRET is a token"),
        ("0123456789abcdef\n", "SLACK_SIGNING_SECRET has invalid characters"),
        ("sécret", "SLACK_SIGNING_SECRET has invalid characters"),
    ],
)
def test_the_http_transport_needs_a_valid_signing_secret(secret, message):
    with pytest.raises(ConfigError) as error:
        signing_secret(tokens(slack_signing_secret=secret))
    assert message in str(error.value)
    assert "Basic Information" in str(error.value) or "Copy it again" in str(error.value)
    assert secret is None or secret.strip() not in str(error.value)


def test_each_transport_needs_its_own_credential_only_and_shows_none():
    http = tokens(slack_app_token=None, slack_signing_secret="0123456789")
    assert "0123456789" not in repr(slack_access(SlackConfig(transport="http"), http))
    assert "xoxb" not in repr(slack_access(SlackConfig(), tokens()))


@pytest.mark.parametrize("url", ["not a url", "localhost:1/api", "http://[::1"])
def test_an_invalid_url_of_the_web_api_is_a_config_error(url):
    with pytest.raises(ConfigError, match="SLACK_API_URL is not a valid URL"):
        api_url(tokens(slack_api_url=url))
