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
    assert load(name="$${TEAM} $TEAM ${} $(x)").instances["a"].persona.name == "${TEAM} $TEAM ${} $(x)"


def test_the_error_names_every_missing_variable_with_its_key(load):
    with pytest.raises(ConfigError) as error:
        load(name="${TEAM_NAME}", key="${SOME_KEY}")
    assert "instances.a.persona.name: the environment variable TEAM_NAME is not set." in str(error.value)
    assert "instances.a.providers.0.config.api_key: the environment variable SOME_KEY is not set." in str(error.value)


def test_a_secret_that_the_service_has_taken_from_the_environment_is_found(load):
    assert provider(load({"ANTHROPIC_API_KEY": "sk-ant-1"}, key="${ANTHROPIC_API_KEY}"))["api_key"] == "sk-ant-1"
    assert "ANTHROPIC_API_KEY" not in os.environ


@pytest.mark.parametrize("taken", [True, False])
def test_child_processes_do_not_inherit_the_variables_of_secret_options(load, *, taken: bool):
    config = load({"TEAM": "Owls", "SOME_KEY": "secret"}, name="${TEAM}", key="${SOME_KEY}", taken=taken)
    assert provider(config)["api_key"] == "secret"
    assert ("SOME_KEY" in os.environ, "TEAM" in os.environ) == (not taken, True)
