"""Which store a command opens, and its errors."""

from __future__ import annotations

import pytest
from stored_conversations import HERE, StoredConversations, run, run_told


@pytest.fixture
def config(kept, config_file):
    """A configuration file that names the store of `kept`, with a relative path."""
    return str(config_file("store: sqlite:kept.db\n"))


@pytest.fixture
def other(tmp_path):
    other = StoredConversations(tmp_path / "other.db")
    other.talk("elsewhere")
    return other


def test_the_configuration_names_the_store_also_in_the_printed_command(kept, config, output_of):
    kept.talk("one", "two")
    output = output_of(run("conversations", "rewind", HERE, "1", "--config", config))
    assert output.rstrip().endswith(f"--config {config}")
    output_of(run_told(output))
    assert kept.said() == ["one", "two"]


def test_the_environment_overrides_the_configuration_and_the_option_both(kept, config, other, output_of):
    kept.talk("here")
    words, env = ("conversations", "list", "--config", config), {"AMPLIFIER_SLACK_STORE": other.url}
    assert "elsewhere" in output_of(run(*words, **env))
    assert "here" in output_of(run(*words, "--store", kept.url, **env))


def test_a_relative_path_starts_at_the_working_folder(kept, monkeypatch, tmp_path, output_of):
    kept.talk("here")
    monkeypatch.chdir(tmp_path)
    assert "here" in output_of(run("conversations", "list", "--store", "sqlite:kept.db"))
    assert "here" in output_of(run("conversations", "list", AMPLIFIER_SLACK_STORE="sqlite:kept.db"))


@pytest.mark.parametrize("words", [("list",), ("show", "x"), ("rewind", "x", "1"), ("prune", "--whole")])
def test_a_missing_file_is_an_error_and_is_not_created(tmp_path, error_of, words):
    error = error_of(run("conversations", *words, "--store", f"sqlite:{tmp_path}/below/typo.db"), 2)
    assert error.startswith(f"The store file {tmp_path}/below/typo.db does not exist. ")
    assert list(tmp_path.iterdir()) == []


def test_the_default_store_is_in_the_home_folder(tmp_path, error_of):
    error = error_of(run("conversations", "list", HOME=str(tmp_path)), 2)
    assert f"The store file {tmp_path}/.local/share/amplifier-slack/conversations.db does not exist." in error


@pytest.mark.parametrize("url", ["geheimgeheim", "sqlite:", "sqlite://host/a.db", "postgres://a:geheimgeheim@b/c"])
def test_an_invalid_url_is_reported_without_its_password(url, error_of):
    assert "geheim" not in error_of(run("conversations", "list", "--store", url), 2)


def test_a_file_that_is_no_database_is_an_error(tmp_path, error_of):
    (tmp_path / "text.db").write_text("a text" * 1000)
    assert "text.db" in error_of(run("conversations", "list", "--store", f"sqlite:{tmp_path}/text.db"), 2)


def test_a_wrong_configuration_is_an_error(config_file, error_of):
    error = error_of(run("conversations", "list", "--config", str(config_file("stores: a"))), 2)
    assert "stores: unknown key" in error


def test_a_store_command_needs_no_variables_of_the_agents(kept, config_file, output_of):
    kept.talk("here")
    file = config_file(
        "store: sqlite:kept.db\ninstances: {a: {persona: {name: A, emoji: ':owl:'}, providers: "
        "[{module: provider-anthropic, config: {api_key: '${NOT_HERE}'}}]}}\ntriggers: {endpoints: {ci: "
        "{secret: '${NOT_HERE}', instance: a, channel: C0GENERAL, text: go}}}"
    )
    assert "here" in output_of(run("conversations", "list", "--config", str(file)))
