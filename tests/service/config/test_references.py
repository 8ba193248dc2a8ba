from __future__ import annotations

import os

import pytest

from service.config.config import Environment, load_config
from service.config.config_errors import ConfigError

FILE = """
instances:
  a:
    persona: {{name: "{name}", emoji: ":owl:"}}
    providers:
      - module: provider-anthropic
        config: {{api_key: "{key}", base_url: "${{BASE_URL:-http://localhost:1}}/v1"}}
lease_s: {lease}
"""


@pytest.fixture
def load(config_file, monkeypatch):
    """Load the file with these values, in this environment."""

    def load(variables=(), *, name="A", key="k", lease="10", taken=True):
        for variable, value in dict(variables).items():
            monkeypatch.setenv(variable, value)
        environment = Environment.take_from_environ() if taken else None
        return load_config(config_file(FILE.format(name=name, key=key, lease=lease)), environment)

    return load


def provider(config):
    return config.instances["a"].providers[0].config


def test_variables_are_expanded_in_texts_and_numbers(load):
    config = load({"TEAM": "Owls", "LEASE": "12.5", "BASE_URL": "http://proxy"}, name="The ${TEAM}", lease="${LEASE}")
    assert (config.instances["a"].persona.name, config.lease_s) == ("The Owls", 12.5)
    assert provider(config)["base_url"] == "http://proxy/v1"


def test_a_default_applies_to_a_variable_that_is_not_set_or_blank(load):
    assert provider(load())["base_url"] == "http://localhost:1/v1"
    assert provider(load({"BASE_URL": ""}))["base_url"] == "http://localhost:1/v1"


def test_two_dollar_signs_are_one_and_other_texts_stay(load):
    name = load({"TEAM": "Owls"}, name="$${TEAM} $${A-b} $TEAM $(x) ${TEAM}").instances["a"].persona.name
    assert name == "${TEAM} ${A-b} $TEAM $(x) Owls"


@pytest.mark.parametrize("form", ["${A-b}", "${A:?x}", "${ A }", "${}", "${A", "${NOPE:-${A}}", "${A-sk-ant-1}"])
def test_an_unsupported_form_is_an_error_that_shows_the_supported_ones(load, form):
    with pytest.raises(ConfigError) as error:
        load({"A": "value"}, name=form)
    assert "instances.a.persona.name: the text after ${ is not a supported reference." in str(error.value)
    assert "Supported are ${NAME}, ${NAME:-default} for" in str(error.value)
    assert "$${ for the text ${." in str(error.value)
    assert "sk-ant-1" not in str(error.value)


def test_the_error_names_every_missing_variable_with_its_key(load):
    with pytest.raises(ConfigError) as error:
        load({"BLANK": ""}, name="${TEAM_NAME} ${BLANK} ${TEAM_NAME}", key="${SOME_KEY}")
    assert str(error.value).count("instances.a.persona.name: the environment variable TEAM_NAME is not set.") == 1
    assert "instances.a.persona.name: the environment variable BLANK is empty." in str(error.value)
    assert "instances.a.providers.0.config.api_key: the environment variable SOME_KEY is not set." in str(error.value)


def test_a_secret_that_the_service_has_taken_from_the_environment_is_found(load):
    assert provider(load({"ANTHROPIC_API_KEY": "sk-ant-1"}, key="${ANTHROPIC_API_KEY}"))["api_key"] == "sk-ant-1"
    assert "ANTHROPIC_API_KEY" not in os.environ


@pytest.mark.parametrize("taken", [True, False])
def test_child_processes_do_not_inherit_the_variables_of_secret_options(load, *, taken: bool):
    config = load({"TEAM": "Owls", "SOME_KEY": "secret"}, name="${TEAM}", key="${SOME_KEY}", taken=taken)
    assert provider(config)["api_key"] == "secret"
    assert ("SOME_KEY" in os.environ, "TEAM" in os.environ) == (not taken, True)


@pytest.mark.parametrize(
    ("text", "is_removed"),
    [
        ("instances: {a: {tools: [{module: x, config: {api_key: '${IT}'}}]}}", True),
        ("instances: {a: {tools: [{module: x, config: {env: {ANTHROPIC_API_KEY: '${IT:-none}'}}}]}}", True),
        ("instances: {a: {tools: [{module: x, config: {apikey: '${IT}'}}]}}", True),
        ("instances: {a: {tools: [{module: x, config: {sshKey: '${IT}'}}]}}", True),
        ("instances: {a: {tools: [{module: x, config: {token: {value: ['${IT}']}}}]}}", True),
        ("store: '${IT}'", True),
        ("store: 'redis://me:${IT}@host:6379/0'", True),
        ("store: 'sqlite:${IT}/conversations.db'", False),
        ("instances: {monkey: {tools: [{module: x, config: {root: '${IT}'}}]}}", False),
        ("instances: {token: {tools: [{module: x, config: {root: '${IT}'}}]}}", False),
        ("instances: {a: {tools: [{module: x, config: {monkey: '${IT}'}}]}}", False),
        ("instances: {a: {tools: [{module: x, config: {api_key: 'k-${IT}'}}]}}", False),
        ("instances: {a: {tools: [{module: x, config: {api_key: '$${IT}'}}]}}", False),
    ],
)
def test_only_a_whole_secret_or_the_password_of_a_url_is_removed_from_the_environment(
    config_file, monkeypatch, text, *, is_removed: bool
):
    monkeypatch.setenv("IT", "value")
    load_config(config_file(text.replace("{tools", "{persona: {name: A, emoji: ':owl:'}, tools")), Environment())
    assert ("IT" not in os.environ) == is_removed
