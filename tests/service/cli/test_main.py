from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

from service.cli.main import main

COMMANDS = (
    "approvals",
    "backup",
    "completion",
    "config",
    "conversations",
    "doctor",
    "feedback",
    "init",
    "manifest",
    "module",
    "people",
    "play",
    "recipe",
    "reload",
    "restore",
    "run",
    "schedules",
    "sessions",
    "top",
    "workers",
    "workspaces",
)
# Packages that are slow to import and that only some commands need.
SLACK, TEMPLATES = {"aiohttp", "slack_bolt", "slack_sdk"}, {"jinja2", "markdown_it"}
# Packages that the service imports only if its configuration needs them.
LATER = {"anthropic", "grpc", "jinja2", "redis"}


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
        ("config", SLACK | TEMPLATES | LATER | {"orchestrator_interactive"}),
        ("play", SLACK | TEMPLATES | LATER | {"orchestrator_interactive", "pydantic", "yaml"}),
        ("module", SLACK | TEMPLATES | LATER),
        ("recipe", SLACK | TEMPLATES | LATER | {"orchestrator_interactive"}),
        ("run", LATER),
        ("sessions", LATER),
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


@pytest.mark.parametrize("words", [[], *([command] for command in COMMANDS), ["conversations", "list"]])
def test_a_short_option_shows_the_help(words):
    result = CliRunner().invoke(main, [*words, "-h"])
    assert (result.exit_code, result.output) == (0, CliRunner().invoke(main, [*words, "--help"]).output)


@pytest.fixture
def interruptible():
    """Let child processes receive SIGINT, which a shell ignores in what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_command_ends_without_a_traceback_and_with_the_code_of_a_shell():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        command = [sys.executable, "-m", "service", "conversations", "list", "--store", store]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, **piped) as asking:  # noqa: S603 - our own command
            connection, _ = silent.accept()
            with connection:
                asking.send_signal(signal.SIGINT)
                said, _ = asking.communicate(timeout=30)
    assert (asking.returncode, said.splitlines()[-1]) == (130, "Interrupted.")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("shell", "part"), [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete --no-files")]
)
def test_a_shell_gets_a_completion_script(shell, part):
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert part in result.output
    assert "amplifier-slack" in result.output
