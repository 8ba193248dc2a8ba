from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.config.config import load_config
from service.config.config_errors import ConfigError
from service.config.slack import address_of, pairs_of


def test_by_default_all_users_have_access_in_all_channels_over_socket_mode():
    config = load_config(None).slack
    assert (config.transport, config.users, config.channels) == ("socket", None, None)
    assert (config.external, config.guests, config.rate_scale) == (False, "allow", 1)


def test_direct_messages_are_threads_with_the_prompts_of_the_section(config_file):
    assert (load_config(None).slack.dm, load_config(None).slack.suggested_prompts) == ("threads", ())
    config = load_config(config_file("slack: {suggested_prompts: [{title: News, message: What is new}]}")).slack
    assert pairs_of(config.suggested_prompts) == (("News", "What is new"),)
    prompts = "suggested_prompts: [{title: Plan, message: Plan my week}]"
    config = load_config(config_file(f"instances: {{alpha: {{persona: {{name: A, emoji: ':a:'}}, {prompts}}}}}"))
    assert pairs_of(config.instances["alpha"].suggested_prompts) == (("Plan", "Plan my week"),)


def test_the_section_limits_users_and_channels(config_file):
    section = "{users: [U012AB3CD, W012AB3CD], channels: [C012AB3CD, G012AB3CD], external: yes}"
    config = load_config(config_file(f"slack: {section}")).slack
    assert (config.users, config.channels) == ({"U012AB3CD", "W012AB3CD"}, {"C012AB3CD", "G012AB3CD"})
    assert config.external


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{transport: window}", "slack.transport: must be 'socket' or 'http'."),
        ("{users: [ana]}", "slack.users.0: must be a user id such as U012AB3CD"),
        ("{users: [U012AB3CD, C012AB3CD]}", "slack.users.1: must be a user id"),
        ("{users: U012AB3CD}", "slack.users: must be a list"),
        ("{users: [7]}", "slack.users.0: must be text"),
        ("{users: []}", "slack.users: must have at least one entry."),
        ("{users: }", "slack.users: is blank; give it a value, or leave the key out."),
        ("{channels: ['#general']}", "slack.channels.0: must be a channel id such as C012AB3CD"),
        ("{external: perhaps}", "slack.external: must be true or false."),
        ("{external: [1]}", "slack.external: must be true or false."),
        ("{guests: yes}", "slack.guests: must be 'allow' or 'deny'."),
        ("{dm: one}", "slack.dm: must be 'threads' or 'single'."),
        ("{suggested_prompts: [news]}", "slack.suggested_prompts.0: must be a mapping"),
        ("{suggested_prompts: [{title: News}]}", "slack.suggested_prompts.0.message: is missing."),
        ("{suggested_prompts: [{title: '', message: Hi}]}", "slack.suggested_prompts.0.title: must not be empty."),
        (
            f"{{suggested_prompts: [{', '.join(['{title: a, message: b}'] * 5)}]}}",
            "slack.suggested_prompts: must have at most 4 entr",
        ),
        ("{rate_scale: 0}", "slack.rate_scale: must be more than 0."),
        ("{rate_scale: .nan}", "slack.rate_scale: must be "),
        ("{listen: 3000}", "slack.listen: must be text"),
        ("{listen: here}", "slack.listen: must be a host and a port, such as 127.0.0.1:3000."),
        ("{listen: 'http://host:3000'}", "slack.listen: must be a host and a port"),
        ("{listen: '127.0.0.1:99999'}", "slack.listen: must be a host and a port"),
        (
            "{user: [U012AB3CD]}",
            "slack.user: unknown key; did you mean users? Valid keys: transport, listen, users, channels, external",
        ),
        ("socket", "slack: must be a mapping"),
        ("{listeners: json:loads}", "slack.listeners: must be a list"),
        ("{listeners: [json.loads]}", "slack.listeners.0: must be a module and a function in it, such as `my_package."),
        (
            "{listeners: ['nowhere:register']}",
            "slack.listeners.0: cannot be imported (ModuleNotFoundError: No mod",
        ),
        ("{listeners: ['json:nothing']}", "names nothing (module 'json' has no attribute 'nothing'); correct the name"),
        ("{listeners: ['json:__doc__']}", "slack.listeners.0: is not a function; name one that adds listeners to"),
    ],
)
def test_a_config_error_names_the_key_and_does_not_repeat_the_value(config_file, section, message):
    with pytest.raises(ConfigError) as error:
        load_config(config_file(f"slack: {section}"))
    assert message in str(error.value)
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
def test_any_other_text_is_a_value_error(text):
    try:
        host, port = address_of(text)
    except ValueError:
        return
    assert host
    assert 0 < port < 65_536
