"""`amplifier-slack play` in a terminal, as `make play` starts it."""

from __future__ import annotations

import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from service_process import run_command

import service

_WITHIN_S = 60.0
_CTRL_C = b"\x03"


class Terminal:
    """A command whose terminal is the test."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "amplifier_slack", *arguments]
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.execv(sys.executable, command)  # noqa: S606 - no shell
        self.output = ""

    def until(self, happened) -> None:
        """Read the output until something has happened, or the command has ended."""
        end = time.monotonic() + _WITHIN_S
        while not happened() and time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.005)[0]:
                try:
                    self.output += os.read(self._terminal, 65_536).decode()
                except OSError:  # nobody has it open any more
                    return
        assert time.monotonic() < end, self.output

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def ended(self) -> int:
        self.until(lambda: False)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def proc(self, file: str) -> str:
        return Path(f"/proc/{self.pid}/{file}").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "AMPLIFIER_SLACK_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "play"


async def test_a_play_prints_its_url_and_one_hint_and_a_second_one_says_that_it_runs(folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    terminal = Terminal("play", "--port", port, "--folder", str(folder))
    terminal.until(lambda: "Ctrl-C" in terminal.output)
    assert re.fullmatch(
        rf"\s+http://127\.0\.0\.1:{port}/\s+Open it in a browser .* Ctrl-C ends it\.\s+", terminal.output
    )

    second = await run_command("play", "--port", port, "--folder", str(folder))
    assert second.code == 1
    assert second.output.startswith(f"Error: amplifier-slack play is already running: http://127.0.0.1:{port}/. ")
    elsewhere = await run_command("play", "--port", port, "--folder", f"{folder}-2")
    assert elsewhere.code == 1
    assert elsewhere.output.startswith(f"Error: Port {port} cannot be used: Address already in use. ")
    assert f"make play PORT={int(port) + 1}." in elsewhere.output

    listed = await run_command(
        "conversations", "list", "--config", f"{folder}/config.yaml", env={"AMPLIFIER_SLACK_STORE": ""}
    )
    assert listed.output == f"There are no conversations in sqlite:{folder}/play.db yet.\n"

    shown = len(terminal.output)
    terminal.press(_CTRL_C)
    assert terminal.ended() == 0
    assert terminal.output[shown:].strip() == "^C"


@pytest.mark.parametrize("moment", ["the workspace is loaded", "the agent is loaded"])
def test_ctrl_c_prints_nothing_while_something_is_loaded(folder, moment):
    terminal = Terminal("play", "--port", "0", "--folder", str(folder))
    terminal.until(lambda: "local_slack" in terminal.proc("cmdline"))
    if moment == "the agent is loaded":
        terminal.until(lambda: terminal.proc(f"task/{terminal.pid}/children"))
    terminal.press(_CTRL_C)
    assert (terminal.ended(), terminal.output.strip()) == (0, "^C")


def test_own_agents_are_played_in_a_fresh_store(folder, tmp_path):
    config = tmp_path / "agents.yaml"
    config.write_text(
        "instances: {Beta: {persona: {name: B, emoji: ':owl:'}}, gamma: {persona: {name: C, emoji: ':owl:'}}}"
    )
    terminal = Terminal("play", "--port", "0", "--folder", str(folder), "--config", str(config))
    terminal.until(lambda: "Ctrl-C" in terminal.output)
    assert "write to @beta or `@beta gamma:`. Ctrl-C ends it." in terminal.output
    terminal.press(_CTRL_C)
    assert terminal.ended() == 0
    assert (folder / "play.db").exists()


@pytest.mark.parametrize("name", ["ana", "élan"])
def test_an_agent_whose_name_no_bot_can_have_is_played_by_the_bot_agent(folder, tmp_path, name):
    config = tmp_path / "agents.yaml"
    config.write_text(f"instances: {{{name}: {{persona: {{name: A, emoji: ':owl:'}}}}}}", encoding="utf-8")
    terminal = Terminal("play", "--port", "0", "--folder", str(folder), "--config", str(config))
    terminal.until(lambda: "Ctrl-C" in terminal.output)
    assert "write to @agent. Ctrl-C ends it." in terminal.output
    terminal.press(_CTRL_C)
    assert terminal.ended() == 0


async def test_a_folder_with_files_of_its_own_is_not_overwritten(folder):
    folder.mkdir()
    for name in ("config.yaml", "play.db"):
        (folder / name).write_text("mine")
    ended = await run_command("play", "--port", "0", "--folder", str(folder))
    assert (ended.code, "Name an empty or a new folder with --folder." in ended.output) == (1, True)
    assert {each.name: each.read_text() for each in folder.iterdir()} == {"config.yaml": "mine", "play.db": "mine"}


async def test_a_configuration_that_cannot_be_played_is_reported_before_the_workspace_starts(folder, tmp_path):
    config = tmp_path / "agents.yaml"
    config.write_text("slack: {transport: http}")
    ended = await run_command("play", "--folder", str(folder), "--config", str(config))
    assert (ended.code, "Socket Mode" in ended.output) == (2, True)


def test_the_command_reports_another_package_of_the_name_of_ours(tmp_path):
    other = tmp_path / "connector/__init__.py"
    other.parent.mkdir()
    other.touch()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path(service.__file__).parents[1])))}
    command = [sys.executable, "-P", "-m", "amplifier_slack", "--version"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        f"Error: the Python package `connector` of amplifier-slack is hidden or overwritten by {other}."
    )
    assert "uvx amplifier-slack" in ended.stderr
