from __future__ import annotations

import subprocess
import sys

import pytest

from service.cli.main import main

COMMANDS = ("conversations", "doctor", "manifest", "module", "run")
# Packages that are slow to import and that only some commands need.
SLACK, TEMPLATES = {"aiohttp", "slack_bolt", "slack_sdk"}, {"jinja2", "markdown_it"}
# Packages that the service imports only if its configuration needs them.
LATER = {"anthropic", "jinja2", "redis"}


def modules_after(code):
    """Return the modules that are imported when this code has run."""
    code = f"import sys; from service.cli.main import main; {code}; print('\\n', *sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    return set(ended.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("conversations", SLACK | TEMPLATES | LATER),
        ("doctor", SLACK | TEMPLATES | LATER),
        ("manifest", SLACK | TEMPLATES | LATER | {"orchestrator_interactive"}),
        ("module", SLACK | TEMPLATES | LATER),
        ("run", LATER),
    ],
)
def test_a_command_imports_only_what_it_needs(command, unneeded):
    assert unneeded.isdisjoint(modules_after(f"main.get_command(None, '{command}')"))


def test_the_help_lists_the_commands_and_imports_none():
    assert tuple(main.list_commands(None)) == COMMANDS
    imported = modules_after("main(['--help'], standalone_mode=False)")
    assert {f"service.cli.{name}" for name in COMMANDS}.isdisjoint(imported)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_name_under_which_it_is_found(command):
    assert main.get_command(None, command).name == command
    assert main.get_command(None, command.upper()) is None
