"""The `slack:` section of the configuration, and what the environment must hold for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from service_process import run_command

from service.config.config import ConfigError, Environment, load_config
from service.config.secrets import secrets
from service.config.slack import SlackConfig, address_of
from service.config.tokens import signing_secret, slack_access


def load(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    return load_config(path)


def test_without_the_section_everybody_may_use_it_everywhere_over_socket_mode():
    config = load_config(None).slack
    assert (config.transport, config.users, config.channels, config.external, config.guests, config.rate_scale) == (
        "socket",
        None,
        None,
        False,
        "allow",
        1,
    )


def test_the_section_says_who_may_use_it_where(tmp_path):
    config = load(
        tmp_path, "slack: {users: [U012AB3CD, W012AB3CD], channels: [C012AB3CD, G012AB3CD], external: yes}"
    ).slack
    assert config.users == {"U012AB3CD", "W012AB3CD"}
    assert config.channels == {"C012AB3CD", "G012AB3CD"}
    assert config.external


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("{transport: window}", "slack.transport: must be 'socket' or 'http'."),
        ("{users: [ana]}", "slack.users.0: must be a user id such as U012AB3CD"),
        ("{users: [U012AB3CD, C012AB3CD]}", "slack.users.1: must be a user id"),
        ("{users: U012AB3CD}", "slack.users: must be a list"),
        ("{users: [7]}", "slack.users.0: must be text"),
        ("{users: []}", "slack.users: must have at least one entry."),
        ("{users: }", "slack.users: is blank; give it a value, or leave the key out."),
        ("{channels: ['#general']}", "slack.channels.0: must be a channel id such as C012AB3CD"),
        ("{channels: }", "slack.channels: is blank"),
        ("{external: perhaps}", "slack.external: must be true or false."),
        ("{guests: yes}", "slack.guests: must be 'allow' or 'deny'."),
        ("{external: [1]}", "slack.external: must be true or false."),
        ("{rate_scale: 0}", "slack.rate_scale: must be more than 0."),
        ("{rate_scale: .nan}", "slack.rate_scale: must be "),
        ("{listen: 3000}", "slack.listen: must be text"),
        ("{listen: here}", "slack.listen: must be a host and a port, such as 127.0.0.1:3000."),
        ("{listen: 'http://host:3000'}", "slack.listen: must be a host and a port"),
        ("{listen: '127.0.0.1:99999'}", "slack.listen: must be a host and a port"),
        (
            "{user: [U012AB3CD]}",
            "slack.user: unknown key; valid keys: transport, listen, users, channels, external, guests, rate_scale, ",
        ),
        ("socket", "slack: must be a mapping"),
    ],
)
def test_what_is_wrong_in_it_is_told_and_not_repeated(tmp_path, section, told):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, f"slack: {section}")
    assert told in str(error.value)
    assert "http://host" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:3000", ("127.0.0.1", 3000)),
        ("slack.example.com:80", ("slack.example.com", 80)),
        ("[::1]:3000", ("::1", 3000)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert address_of(text) == address


@given(st.text(max_size=30))
def test_whatever_an_address_is_it_is_one_or_told(text):
    try:
        host, port = address_of(text)
    except ValueError:
        return
    assert host
    assert 0 < port < 65_536


def environment(**given):
    tokens = {"slack_app_token": "xapp-1-A0-1-a", "slack_bot_token": "xoxb-1", **given}
    return Environment(**{name: value and SecretStr(value) for name, value in tokens.items()})


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (None, "SLACK_SIGNING_SECRET is not set: `transport: http` requires it."),
        ("xoxb-1-of-the-test", "SLACK_SIGNING_SECRET is a token"),
        ("0123456789abcdef\n", "SLACK_SIGNING_SECRET has invalid characters"),
        ("sécret", "SLACK_SIGNING_SECRET has invalid characters"),
    ],
)
def test_the_door_http_needs_the_signing_secret(secret, told):
    with pytest.raises(ConfigError) as error:
        signing_secret(environment(slack_signing_secret=secret))
    assert told in str(error.value)
    assert "Basic Information" in str(error.value) or "Copy it again" in str(error.value)
    assert secret is None or secret.strip() not in str(error.value)


def test_the_door_http_needs_no_app_token():
    access = slack_access(
        SlackConfig(transport="http"), environment(slack_app_token=None, slack_signing_secret="0123456789")
    )
    assert "0123456789" not in repr(access)


def test_the_door_socket_needs_no_signing_secret():
    assert "xoxb" not in repr(slack_access(SlackConfig(), environment()))
    with pytest.raises(ConfigError, match="SLACK_APP_TOKEN is not set"):
        slack_access(SlackConfig(), environment(slack_app_token=None))


def test_the_signing_secret_never_reaches_the_log():
    assert "of-the-signature" in secrets(environment(slack_signing_secret="of-the-signature"))


async def test_the_service_says_which_secret_it_lacks(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("slack: {transport: http}")
    ended = await run_command("run", "--config", str(path), env={"SLACK_BOT_TOKEN": "xoxb-1", "HOME": str(tmp_path)})
    assert ended.code == 2, ended.output
    assert "Error: SLACK_SIGNING_SECRET is not set: `transport: http` requires it." in ended.output
