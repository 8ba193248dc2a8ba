from __future__ import annotations

import asyncio
import sys

import pytest
from click.testing import CliRunner
from example_modules import EXAMPLES, Checker
from service_process import run_command

from service.cli.main import main

TOOL = str(EXAMPLES / "tool_words.py")


@pytest.fixture
def checker(tmp_path):
    return Checker(tmp_path)


async def test_a_module_that_passes_ends_with_0():
    ended = await run_command("module", "validate", TOOL)
    assert ended.code == 0
    lines = ended.output.splitlines()
    assert lines[:2] == [f"Module tool-words in {TOOL}", "Type: tool (detected: it mounts at 'tools')."]
    assert lines[-1] == "Passed: 19 of 19 checks passed."
    assert "\x1b" not in ended.output


async def test_a_module_that_fails_ends_with_1(checker):
    failure = 'ToolResult(success=False, error={"message": "text is required, and must be a text."})'
    path = checker.changed("tool_words", (f"return {failure}", "raise ValueError"))
    ended = await run_command("module", "validate", str(path), "--type", "tool")
    assert ended.code == 1
    assert "Type: tool (as you asked)." in ended.output
    assert "  failed       execute() does not raise, with any input that was tried\n" in ended.output
    assert "(Tool Contract: execute() Method)" in ended.output
    assert ended.output.splitlines()[-1].startswith("Failed: ")


async def test_a_module_that_mounts_nothing_ends_with_2(checker):
    path = checker.changed("provider_web", ('if not config.get("api_key"):', 'if not config.get("account"):'))
    ended = await run_command("module", "validate", str(path))
    assert ended.code == 2
    assert "fix: Pass its configuration with --config." in ended.output
    assert ended.output.splitlines()[-1].startswith("Not validated: ")
    assert (await run_command("module", "validate", str(path), "--config", "{account: mine}")).code == 0
    config = path.with_name("config.yaml")
    config.write_text("account: mine\n")
    assert (await run_command("module", "validate", str(path), "--config", str(config))).code == 0


async def test_a_tool_with_side_effects_is_called_with_the_given_input(checker):
    path = str(checker.changed("tool_words", ("side_effect_free = True", "side_effect_free = False")))
    ended = await run_command("module", "validate", path)
    assert ended.code == 0
    assert "not checked  a valid input is executed\n" in ended.output
    assert "reason: The tool may have side effects.\n" in ended.output
    ended = await run_command("module", "validate", path, "--input", "{text: one two}")
    assert ended.code == 0
    assert "passed       a valid input is executed\n" in ended.output


async def test_the_name_of_an_installed_module_is_no_path():
    ended = await run_command("module", "validate", "tool-todo")
    assert ended.code == 2
    assert "That is the name of an installed module, not a path." in ended.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([TOOL, "--config", "config-that-is-not-there.yaml"], "--config must be a mapping"),
        ([TOOL, "--input", "[a, b]"], "--input must be a mapping."),
        ([TOOL, "--config", "[a, b]"], "--config must be a mapping."),
        ([TOOL, "--config", "{1: one}"], "--config must be a mapping."),
        ([TOOL, "--config", "{a: [}"], "--config is not valid YAML"),
        ([TOOL, "--config", "{a: 2024-13-45}"], "--config is not valid YAML"),
        ([TOOL, "--config", "{a: *b}"], "--config is not valid YAML"),
        ([TOOL, "--config", "a: &a [*a]"], "--config is nested more than 100 levels deep, or contains itself"),
        ([TOOL, "--input", "a: " + "[" * 150 + "]" * 150], "--input is nested more than 100 levels deep"),
        ([TOOL, "--input", "a: " + "[" * 900 + "]" * 900], "--input is not valid YAML"),
        ([TOOL, "--config", "x" * 5000], "--config must be a mapping"),
        ([TOOL, "--config", f"{EXAMPLES}"], "--config must be a mapping"),
    ],
)
def test_an_invalid_option_ends_with_2_and_a_sentence(arguments, said):
    ended = CliRunner().invoke(main, ["module", "validate", *arguments])
    assert ended.exit_code == 2
    assert said in ended.output
    assert len([line for line in ended.output.splitlines() if line.startswith("Error: ")]) == 1


async def test_a_missing_path_ends_with_2_and_a_sentence():
    ended = await run_command("module", "validate", "nowhere/at/all")
    assert ended.code == 2
    assert ended.output == "Error: There is nothing at nowhere/at/all. Check the path.\n"


async def test_a_binary_configuration_file_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    ended = await run_command("module", "validate", TOOL, "--config", str(tmp_path / "config.yaml"))
    assert ended.code == 2
    assert "is not a text file" in ended.output


async def test_an_unknown_type_is_refused_with_the_known_ones():
    ended = await run_command("module", "validate", TOOL, "--type", "agent")
    assert ended.code == 2
    assert "'orchestrator', 'context', 'provider', 'tool', 'hook'" in ended.output


async def test_a_module_that_hangs_does_not_hang_the_command(checker):
    execute = "    async def execute(self, input):  # noqa: A002 - the name is the contract's\n"
    path = checker.changed("tool_words", (execute, execute + "        while True:\n            pass\n"))
    ended = await run_command("module", "validate", str(path), "--time-limit", "0.2")
    assert ended.code == 1
    assert "It blocks the process for more than 0.2 seconds" in ended.output


async def test_secrets_of_the_configuration_are_not_printed(checker):
    mount = "async def mount(coordinator, config):\n"
    path = checker.changed("tool_words", (mount, mount + "    raise ValueError(f'{config} is wrong')\n"))
    config = "{api_key: opensesame-1234567, nested: [{password: hush-hush-hush-1}]}"
    ended = await run_command("module", "validate", str(path), "--config", config)
    assert ended.code == 1
    assert "It raises ValueError" in ended.output
    assert "opensesame" not in ended.output
    assert "hush" not in ended.output


async def test_one_of_several_modules_of_a_project_must_be_chosen(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "two"\n[project.entry-points."amplifier.modules"]\na = "a:mount"\nb = "b:mount"\n'
    )
    ended = await run_command("module", "validate", str(tmp_path))
    assert ended.code == 2
    assert "Give the package or the file of one of them." in ended.output


async def test_a_new_project_passes_its_own_test_and_the_checks_and_is_used_by_its_agent(tmp_path):
    folder = tmp_path / "dice"
    written = await run_command("module", "new", "tool-dice", str(folder))
    assert written.code == 0
    assert f"amplifier-slack play --config {folder}/agent.yaml" in written.output
    validated = await run_command("module", "validate", str(folder))
    assert validated.output.splitlines()[-1] == "Passed: 18 of 18 checks passed."
    checked = await run_command("config", "check", str(folder / "agent.yaml"))
    assert (checked.code, checked.output.endswith("no problems found, 1 agent (alpha).\n")) == (0, True)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", folder)
    tested = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=asyncio.subprocess.PIPE)
    output, _ = await tested.communicate()
    assert b"2 passed" in output, output.decode()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Dice", "'Dice' is not the name of a tool module. Choose one such as tool-dice"),
        ("hooks-dice", "'hooks-dice' is not the name of a tool module."),
        ("tool-todo", "A module tool-todo is installed already. Choose another name."),
        ("tool-there", "there exists already. Choose another name"),
    ],
)
async def test_a_new_module_needs_a_name_that_is_valid_and_free(tmp_path, name, problem):
    (tmp_path / "there").mkdir()
    refused = await run_command("module", "new", name, str(tmp_path / "there"))
    assert refused.code == 2
    assert problem in refused.output
    assert not list((tmp_path / "there").iterdir())
