from __future__ import annotations

import subprocess
import sys

import pytest

from service.cli.main import main

COMMANDS = ("conversations", "doctor", "manifest", "module", "run")
# Each takes longer to load than what most commands do.
SLACK, TEMPLATES = {"aiohttp", "slack_bolt", "slack_sdk"}, {"jinja2", "markdown_it"}
# The start of the service waits for none of them: who has no Redis, or no such provider, never does.
LATER = {"anthropic", "jinja2", "redis"}


def loaded_by(code):
    """The modules that are there when this has run."""
    code = f"import sys; from service.cli.main import main; {code}; print('\\n', *sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    return set(ended.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("command", "not_needed"),
    [
        ("conversations", SLACK | TEMPLATES | LATER),
        ("doctor", SLACK | TEMPLATES | LATER),
        ("manifest", SLACK | TEMPLATES | LATER | {"orchestrator_interactive"}),
        ("module", SLACK | TEMPLATES | LATER),
        ("run", LATER),
    ],
)
def test_a_command_loads_nothing_that_only_others_need(command, not_needed):
    assert not_needed.isdisjoint(loaded_by(f"main.get_command(None, '{command}')"))


def test_the_help_names_the_commands_and_loads_none():
    assert tuple(main.list_commands(None)) == COMMANDS
    loaded = loaded_by("main(['--help'], standalone_mode=False)")
    assert {f"service.{name}_command" for name in COMMANDS}.isdisjoint(loaded)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_called_as_it_is_named(command):
    assert main.get_command(None, command).name == command
    assert main.get_command(None, command.upper()) is None
