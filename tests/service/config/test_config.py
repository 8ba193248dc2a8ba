from __future__ import annotations

import pytest

from service.config.config import load_config
from service.config.config_errors import ConfigError

PERSONA = "persona: {name: A, emoji: ':owl:'}"
INSTANCE = f"instances: {{a: {{{PERSONA}}}}}\n"


def instance(more):
    return f"instances: {{a: {{{PERSONA}, {more}}}}}"


@pytest.fixture
def load(config_file):
    return lambda text: load_config(config_file(text))


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "42", "a: \x00", "? [a, b]\n: c", "1: x"),
        *("!!python/object:os.system {}", "a: !!int ''", "a: !!bool perhaps", "a: !!timestamp soon"),
        *("when: 2024-13-45T99:99:99", "a: " + "9" * 5000, "a: " + "[" * 2000),
        *("instances: {a: null}", "instances: [a]"),
        f'instances: {{"a\\nb": {{{PERSONA}}}}}',
        f"instances: {{a: {{{PERSONA}}}, a: {{{PERSONA}}}}}",
        *(instance(more) for more in ("instructions: 2024-99-99", "tools: tool-todo", "tools: [{config: {}}]")),
        *(instance(more) for more in ("tools: [[tool-todo]]", "context: {module: 7}")),
        INSTANCE + "workspace: {root: ~nobody-is-called-this/files}",
        INSTANCE + "workspace: {template: ~nobody-is-called-this/files}",
        INSTANCE + 'workspace: {root: "a\\0b"}',
        INSTANCE + 'workspace: {template: "a\\0b"}',
        INSTANCE + f'workspace: {{root: "{"x" * 5000}"}}',
        INSTANCE + "log: null",
    ],
)
def test_any_invalid_file_is_a_config_error_of_one_line(load, text):
    with pytest.raises(ConfigError) as error:
        load(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instances: {a: {persona: {name: A, emoji: ':owl:', colour: red}}}", "instances.a.persona.colour: unknown"),
        (
            "slack: {command: alpha}",
            "slack.command: must be a slash and at most 31 of a-z, 0-9, _ and -, such as `/agent`.",
        ),
        (
            "instances: {a: {persona: {name: A, emoji: owl}}}",
            "instances.a.persona.emoji: must be an emoji code such as",
        ),
        (
            "instance: {}",
            "instance: unknown key; did you mean instances? Valid keys: instances, slack, channels, workspace, store, ",
        ),
        ("stores: a", "stores: unknown key"),
        ("instances: {a: {persona: {name: A}}}", "instances.a.persona.emoji: is missing."),
        ("instances: {a: {persona: {name: A, emoji: owl}}}", "instances.a.persona.emoji: "),
        ("instances: {}", "instances: "),
        ("instances: {a: [x]}", "instances.a: must be a mapping"),
        (f"instances: {{1: {{{PERSONA}}}}}", "instances.1: must be a text key; put it into quotes."),
        (
            f"instances: {{tools: {{{PERSONA}, colour: red}}}}",
            "valid keys: answer, steer, consent, persona",
        ),
        (f"instances: {{alpha: {{{PERSONA}}}, Alpha: {{{PERSONA}}}}}", "alpha and Alpha differ only in case"),
        (f"instances: {{the fox: {{{PERSONA}}}}}", "the name 'the fox' must be one word"),
        (instance("instructions: 7"), "instances.a.instructions: must be text"),
        (instance("tools:"), "instances.a.tools: is blank; write `[]` for none"),
        (instance("tools: x"), "instances.a.tools: must be a list"),
        (instance("hooks: [7]"), "instances.a.hooks.0: must be the name of a module"),
        (instance("tools: [{module: t, source: nowhere}]"), "instances.a.tools.0.source: "),
        (instance("tools: [{module: t, source: 'git+https://h/m'}]"), "tools.0.source: must be a local path"),
        (instance("session: {hook_timeout_s: 0}"), "session.hook_timeout_s: must be more than 0"),
        (instance("session: {hook_timeout_s: soon}"), "session.hook_timeout_s: must be a number"),
        (instance("session: {injection_size_limit: -1}"), "session.injection_size_limit: must be 0 or more"),
        (instance("session: {hooks: 3}"), "session.hooks: unknown key; valid keys: hook_timeout_s, injection_size_"),
        ("limits: {runs: 0}", "limits.runs: must be 1 or more."),
        ("limits: {runs_per_person: many}", "limits.runs_per_person: must be a whole number."),
        (
            "limits: {people: 3}",
            "limits.people: unknown key; valid keys: runs, runs_per_workspace, runs_per_channel, runs_per_person.",
        ),
        ("log: {level: loud}", "log.level: must be 'debug', 'info', 'warning' or 'error'."),
        ("log:\n  level: info\n  level: debug", "found a duplicate key (line 3, column 3)."),
        ("a:\n  b: 2024-13-01", "found an invalid value; put it into quotes (line 2, column 6)."),
        ("idle_evict_s: 0", "idle_evict_s: must be more than 0."),
        ("shutdown_grace_s: -1", "shutdown_grace_s: must be 0 or more."),
        ("shutdown_grace_s: .inf", "shutdown_grace_s: must be a number."),
        (
            "installations: {settings: {T012AB3CD: {users: }}}",
            "installations.settings.T012AB3CD.users: is blank; give it a value, or leave the key out.",
        ),
        ("installations: {settings: {T012AB3CD: {channels: }}}", "installations.settings.T012AB3CD.channels: is blank"),
        ("lease_s: 1.5", "lease_s: must be 2 or more."),
        ("lease_s: 61", "lease_s: must be 60 or less."),
        ("lease_s: soon", "lease_s: must be a number."),
        ("workspace: {template: nowhere}", "workspace.template: the folder"),
        ("store: 5", "store: must be text"),
        ("store:", "store: is blank; give it a value"),
        ("store: 'sqlite:~nobody-is-called-this/a.db'", "store: invalid path"),
        ('store: "sqlite:a\\0b"', "store: invalid path"),
        ("store: 'memory:'", "store: `memory:` is not persistent"),
        ("- a", "has no keys"),
        ("a: [", "is not valid YAML"),
        ("a: &a [*a]", "is nested more than 100 levels deep, or contains itself."),
        ("a: " + "[" * 900 + "]" * 900, "is nested too deeply."),
    ],
)
def test_a_config_error_names_the_key_and_the_remedy(load, text, message):
    with pytest.raises(ConfigError) as error:
        load(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"no.yaml: cannot be read: No such file or directory\. Check the path"):
        load_config(tmp_path / "no.yaml")


@pytest.mark.parametrize("option", ["store: 'memory:'", "conversation_id: x", "agent_id: x"])
def test_an_instance_cannot_choose_where_its_log_is_stored(load, option):
    with pytest.raises(
        ConfigError, match=r"instances\.a\.context: '.*' of context-stack is set by the service; .*`store:` at"
    ):
        load(instance(f"context: {{module: context-stack, config: {{{option}}}}}"))


def test_an_anchor_with_a_merge_key_is_accepted(load):
    text = f"instances:\n  a: &a\n    {PERSONA}\n    tools: [tool-todo]\n  b:\n    <<: *a\n    tools: []\n"
    assert [len(instance.tools) for instance in load(text).instances.values()] == [1, 0]


def test_paths_are_relative_to_the_file_or_to_the_home_folder(load, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "notes").mkdir()
    workspace = load(INSTANCE + "workspace: {root: ~/files, template: ./notes}").workspace
    assert (workspace.root, workspace.template) == (tmp_path / "home" / "files", tmp_path / "notes")


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("sqlite:kept/a b.db", "sqlite:{folder}/kept/a b.db"),
        ("sqlite:../a.db", "sqlite:{folder.parent}/a.db"),
        ("sqlite:///var/lib/a.db", "sqlite:/var/lib/a.db"),
        ("sqlite:/var/lib/a.db", "sqlite:/var/lib/a.db"),
        ("redis://:geheim@host:6379/0?ttl_days=30", "redis://:geheim@host:6379/0?ttl_days=30"),
        ("postgres://host", "postgres://host"),
    ],
)
def test_only_the_path_of_an_sqlite_store_is_made_absolute(load, tmp_path, store, url):
    assert load(f"store: '{store}'").store.get_secret_value() == url.format(folder=tmp_path)
