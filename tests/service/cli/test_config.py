"""`amplifier-slack init`, `config schema` and `config check`."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import yaml
from service_process import run_command
from stored_conversations import run

from service.config.config import ServiceConfig, load_config

FILES = "{module: tool-filesystem, config: {rot: .}}"
PERSONA = "persona: {name: A, emoji: ':owl:'}"


@pytest.fixture
def written(tmp_path):
    """The path of a file that `init` wrote."""
    file = tmp_path / "agents.yaml"
    assert run("init", str(file)).exit_code == 0
    return file


def schema():
    return json.loads(run("config", "schema").stdout)


async def test_init_writes_a_file_that_is_valid_and_names_the_schema_beside_it(written):
    (beside,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", written.read_text(), re.MULTILINE)
    assert json.loads((written.parent / beside).read_text()) == schema()
    assert list(load_config(written).instances) == ["alpha"]
    checked = await run_command("config", "check", str(written))
    assert (checked.code, checked.output) == (0, f"{written}: no problems found, 1 agent (alpha).\n")


def test_each_default_in_the_file_is_valid_once_its_comment_sign_is_removed(written):
    text = re.sub(r"^# (?= *\w+:)", "", written.read_text().partition("\n\n")[2], flags=re.MULTILINE)
    assert (
        load_config(written)
        == ServiceConfig.model_validate(
            {**yaml.safe_load(text), "workspace": load_config(written).workspace, "store": load_config(written).store}
        ).model_copy()
    )
    assert set(yaml.safe_load(text)) == {
        name
        for name, field in ServiceConfig.model_fields.items()
        if field.get_default(call_default_factory=True) is not None
    }


def test_init_names_a_missing_folder(tmp_path):
    refused = run("init", str(tmp_path / "none/agents.yaml"))
    assert (refused.exit_code, f"There is no folder {tmp_path}/none." in refused.output) == (2, True)


def test_init_keeps_an_existing_file_without_force(written):
    written.write_text("instances: {}")
    refused = run("init", str(written))
    assert refused.exit_code == 2
    assert f"{written} exists already. Name another file, or replace it with --force." in refused.output
    assert run("init", str(written), "--force").exit_code == 0
    assert load_config(written).instances


@pytest.mark.parametrize("name", [".", "", "/"])
def test_init_needs_the_name_of_a_file(name):
    refused = run("init", "--force", name)
    assert (refused.exit_code, "is a folder. Name a file" in refused.output) == (2, True)


def test_init_renews_its_schema_and_nothing_else(written):
    beside = written.with_suffix(".schema.json")
    written.unlink()
    beside.write_text('{"title": "ServiceConfig"}')
    assert run("init", str(written)).exit_code == 0
    assert "properties" in json.loads(beside.read_text())
    written.unlink()
    beside.write_text("mine")
    assert run("init", str(written)).exit_code == 2
    assert (beside.read_text(), written.exists()) == ("mine", False)


@pytest.mark.parametrize(("given", "name"), [("':octagonal_sign:'", "octagonal_sign"), ("x", "x")])
def test_the_stop_reaction_is_a_name_with_or_without_colons(config_file, given, name):
    assert load_config(config_file(f"slack: {{stop_reaction: {given}}}")).slack.stop_reaction == name


def test_the_schema_describes_every_key():
    sections = [schema(), *schema()["$defs"].values()]
    objects = [each for section in sections for each in (section, *section.get("anyOf", ())) if "properties" in each]
    assert not [
        f"{each['title']}.{n}" for each in objects for n, p in each["properties"].items() if not p.get("description")
    ]


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (f"instances: {{a: {{{PERSONA}, tools: [tool-todo, {{module: tool-x, config: {{a: 1}}}}]}}}}", True),
        (f"instances: {{a: {{{PERSONA}, tool: []}}}}", False),
        (f"instances: {{a: {{{PERSONA}}}}}\nlease_s: ${{LEASE}}\nslack: {{external: '${{EXTERNAL:-false}}'}}", True),
        (f"instances: {{a: {{{PERSONA}}}}}\nlease_s: long", False),
        (f"instances: {{a: {{{PERSONA}}}}}\nlog: {{level: loud}}", False),
    ],
)
def test_the_schema_accepts_what_the_service_accepts(text, is_valid):
    assert jsonschema.Draft7Validator(schema()).is_valid(yaml.safe_load(text)) is is_valid


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "instancs: {}\nslack: {tranport: http}",
            ["did you mean instances?", "slack.tranport: unknown key; did you mean transport?"],
        ),
        (
            f"instances: {{a: {{{PERSONA}, tools: [tool-tdo]}}, b: {{{PERSONA}, tools: [{FILES}]}}}}",
            [
                "2 problems:",
                "instances.a: There is no module 'tool-tdo'. Did you mean 'tool-todo'?",
                "did you mean 'root'?",
            ],
        ),
    ],
)
async def test_a_check_reports_all_problems_at_once_and_what_was_probably_meant(config_file, text, parts):
    checked = await run_command("config", "check", str(config_file(text)))
    assert checked.code == 2
    assert [part for part in parts if part not in checked.output] == []
    assert checked.output.count("Error: ") == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("store: mysql:x", "store: The URL of the store is not supported: use `sqlite:PATH`"),
        ("store: ''", "store: The URL of the store is not supported: use `sqlite:PATH`"),
        ("store: sqlite:.", "cannot be written. Name a file in a folder that the service may write."),
        ("workspace: {template: nowhere}", "agents.yaml: workspace.template: the folder"),
        ("slack: {bots: [U012AB3CD]}", "slack.bots.0: must be a bot id such as B012AB3CD"),
    ],
)
async def test_a_check_creates_nothing_and_names_the_file(tmp_path, text, problem):
    file = tmp_path / "agents.yaml"
    file.write_text(f"instances: {{a: {{{PERSONA}}}}}\n{text}", encoding="utf-8")
    checked = await run_command("config", "check", str(file), env={"AMPLIFIER_SLACK_STORE": ""})
    assert checked.code == 2
    assert problem in checked.output
    file.write_text(f"instances: {{a: {{{PERSONA}, providers: [{{module: provider-demo}}]}}}}", encoding="utf-8")
    checked = await run_command("config", "check", str(file), env={"AMPLIFIER_SLACK_STORE": ""})
    assert (checked.code, [path.name for path in tmp_path.iterdir()]) == (0, ["agents.yaml"])
