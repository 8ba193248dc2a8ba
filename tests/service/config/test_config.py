from __future__ import annotations

from pathlib import Path

import pytest
from service_process import run_command

from service.config.config import ConfigError, load_config

TOKENS = {"SLACK_APP_TOKEN": "xapp-a", "SLACK_BOT_TOKEN": "xoxb-b"}
PERSONA = "persona: {name: A, emoji: ':owl:'}"


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "42",
        "a: &a [*a]",
        "? [a, b]\n: c",
        "!!python/object:os.system {}",
        "instances: {a: {" + PERSONA + ", instructions: 2024-99-99}}",
        "when: 2024-13-45T99:99:99",
        "a: " + "9" * 5000,
        "a: " + "[" * 2000,
        "1: x",
        "instances: {1: {" + PERSONA + "}}",
        "instances: {a: null}",
        "instances: [a]",
        "instances: {a: {" + PERSONA + ", tools:}}",
        "instances: {a: {" + PERSONA + ", tools: tool-todo}}",
        "instances: {a: {" + PERSONA + ", tools: [{config: {}}]}}",
        "instances: {a: {" + PERSONA + ", tools: [[tool-todo]]}}",
        "instances: {a: {" + PERSONA + ", context: {module: 7}}}",
        "instances: {a: {" + PERSONA + "}}\nworkspace: {root: ~nobody-is-called-this/files}",
        "instances: {a: {" + PERSONA + "}}\nworkspace: {template: ~nobody-is-called-this/files}",
        "instances: {a: {" + PERSONA + '}}\nworkspace: {root: "a\\0b"}',
        "instances: {a: {" + PERSONA + '}}\nworkspace: {template: "a\\0b"}',
        "instances: {a: {" + PERSONA + '}}\nworkspace: {root: "' + "x" * 5000 + '"}',
        "instances: {a: {" + PERSONA + "}}\nlog: null",
        "instances: {a b: {" + PERSONA + "}}",
        'instances: {"a\\nb": {' + PERSONA + "}}",
        "instances: {a: {" + PERSONA + "}, a: {" + PERSONA + "}}",
        "a: !!int ''",
        "a: !!bool perhaps",
        "a: !!timestamp soon",
        "a: \x00",
    ],
)
def test_whatever_stands_in_the_file_it_is_told_as_a_wrong_configuration(tmp_path, text):
    with pytest.raises(ConfigError) as told:
        load_config(written(tmp_path, text))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("instances: {a: {" + PERSONA + ", tools:}}", "instances.a.tools: is blank; write `[]` for none"),
        ("instances: {a: {" + PERSONA + ", tools: x}}", "instances.a.tools: must be a list"),
        ("instances: {a: [x]}", "instances.a: must be a mapping"),
        ("instances: {a: {" + PERSONA + ", instructions: 7}}", "instances.a.instructions: must be text"),
        ("instances: {1: {" + PERSONA + "}}", "instances.1: must be a text key; put it into quotes."),
        ("instances: {a: {" + PERSONA + ", hooks: [7]}}", "instances.a.hooks.0: must be the name of a module"),
        ("limits: {runs: 0}", "limits.runs: must be 1 or more."),
        ("limits: {runs_per_person: many}", "limits.runs_per_person: must be a whole number."),
        ("limits: {people: 3}", "limits.people: unknown key; valid keys: runs, runs_per_channel, runs_per_person."),
        ("log: {level: loud}", "log.level: must be 'debug', 'info', 'warning' or 'error'."),
        ("log:\n  level: info\n  level: debug", "found a duplicate key (line 3, column 3)."),
        ("a:\n  b: 2024-13-01", "found an invalid value; put it into quotes (line 2, column 6)."),
        ("instances: {tools: {" + PERSONA + ", colour: red}}", "valid keys: persona, instructions"),
        ("instances: {alpha: {" + PERSONA + "}, Alpha: {" + PERSONA + "}}", "alpha and Alpha differ only in case"),
        ("instances: {the fox: {" + PERSONA + "}}", "the name 'the fox' must be one word"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_file(tmp_path, text, told):
    with pytest.raises(ConfigError) as error:
        load_config(written(tmp_path, text))
    assert told in str(error.value)


def test_an_anchor_and_a_merged_key_are_fine(tmp_path):
    text = f"instances:\n  a: &a\n    {PERSONA}\n    tools: [tool-todo]\n  b:\n    <<: *a\n    tools: []\n"
    config = load_config(written(tmp_path, text))
    assert [len(instance.tools) for instance in config.instances.values()] == [1, 0]


def test_paths_are_relative_to_the_file_and_the_home_folder_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "notes").mkdir()
    config = load_config(
        written(tmp_path, f"instances: {{a: {{{PERSONA}}}}}\nworkspace: {{root: ~/files, template: ./notes}}")
    )
    assert (config.workspace.root, config.workspace.template) == (tmp_path / "home" / "files", tmp_path / "notes")


def test_no_tools_means_no_tools(tmp_path):
    config = load_config(written(tmp_path, f"instances: {{a: {{{PERSONA}, tools: []}}}}"))
    assert config.instances["a"].tools == ()


@pytest.mark.parametrize(
    "entry",
    [
        "orchestrator: context-simple",
        "orchestrator: tool-todo",
        "context: loop-interactive",
        "context: tool-todo",
        "providers: [tool-todo]",
        "tools: [provider-demo]",
    ],
)
async def test_a_module_of_another_kind_is_told_at_the_start(tmp_path, entry):
    path = written(tmp_path, f"instances: {{a: {{{PERSONA}, {entry}}}}}")
    ended = await run_command("run", "--config", str(path), env={**TOKENS, "SLACK_API_URL": "http://127.0.0.1:9/"})
    assert ended.code == 2, ended.output
    assert "Traceback" not in ended.output
    assert entry.split(":")[0].rstrip("s") in ended.output


@pytest.mark.parametrize("workspace", ["{root: notes/files, template: notes}", "{root: config.yaml}"])
async def test_a_root_that_cannot_work_is_told_at_the_start(tmp_path, workspace):
    (tmp_path / "notes").mkdir()
    path = written(tmp_path, f"instances: {{a: {{{PERSONA}}}}}\nworkspace: {workspace}")
    ended = await run_command("run", "--config", str(path), env={**TOKENS, "SLACK_API_URL": "http://127.0.0.1:9/"})
    assert ended.code == 2, ended.output
    assert "Error: workspace.root: " in ended.output
    assert "Traceback" not in ended.output


async def test_two_instances_whose_names_differ_only_in_case_are_told(tmp_path):
    path = written(tmp_path, f"instances: {{alpha: {{{PERSONA}}}, Alpha: {{{PERSONA}}}}}")
    ended = await run_command("run", "--config", str(path), env={**TOKENS, "SLACK_API_URL": "http://127.0.0.1:9/"})
    assert ended.code == 2, "only one of them could ever be spoken to"


@pytest.mark.parametrize("url", ["not a url", "localhost:1/api", "http://[::1", "http://127.0.0.1:99999/"])
async def test_an_address_that_is_none_is_one_clear_line(tmp_path, url):
    ended = await run_command("run", env={**TOKENS, "SLACK_API_URL": url, "HOME": str(tmp_path)})
    assert ended.code in (1, 2), ended.output
    assert "Traceback" not in ended.output
    assert "SLACK_API_URL" in ended.output
