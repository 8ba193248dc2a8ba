"""Every command of the pages runs as printed, as a new user after `make play` and `. .venv/bin/activate`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import sysconfig
import venv
from asyncio.subprocess import PIPE, STDOUT
from contextlib import suppress
from pathlib import Path

import pytest
from stored_conversations import StoredConversations

from local_slack import LocalSlack
from service.store import open_run_store

ROOT = Path(__file__).parents[2]
CONVERSATION = "T0TEAM:C0GENERAL:1732204800.000100"
# Beginnings of commands that a test cannot run, each with the reason.
CANNOT_RUN = {
    "export SLACK_": "the test has the tokens of the local Slack",
    "export ANTHROPIC_": "needs a key",
    ". .venv/bin/activate": "done before each command",
    "pip install": "needs the package index",
    "amplifier-slack reload": "needs a service that runs",
    "amplifier-slack workspaces remove": "needs an installation",
    "make test": "runs the tests",
}
# What commands that serve until Ctrl-C print once they work.
SERVES = {
    "amplifier-slack play": "Ctrl-C ends it",
    "amplifier-slack run": "service.ready",
    "amplifier-slack sessions serve": "sessions.ready",
    "make play": "Ctrl-C ends it",
    "python -m local_slack -- python -m local_slack.launch": "http://127.0.0.1:",
    "python -m local_slack -- amplifier-slack": "service.ready",
    "python -m local_slack": "http://127.0.0.1:",
}
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))]
# A code block, and its file if the line above is "This is `FILE`:".
BLOCK = r"(?:^This is `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```$"


def steps_of(page):
    """Return the commands of a page in order; between them, the files to write as pairs of path and text."""
    for path, language, text in re.findall(BLOCK, (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL):
        if language == "sh":
            yield from (line for line in text.replace("\\\n", " ").splitlines() if line)
        elif path:
            yield path, text


def commands_of(page):
    """Return the steps of a page without those that cannot run; none if the others are files only."""
    steps = [step for step in steps_of(page) if isinstance(step, tuple) or not step.startswith(tuple(CANNOT_RUN))]
    return steps if any(isinstance(step, str) for step in steps) else []


@pytest.fixture
def checkout(tmp_path):
    """A checkout after `make play`, whose environment has these packages, in a home folder with a conversation."""
    home, checkout = tmp_path / "home", tmp_path / "checkout"
    home.mkdir()
    shutil.copytree(ROOT / "docs", checkout / "docs")
    shutil.copytree(ROOT / "deploy", checkout / "deploy")
    shutil.copytree(ROOT / "conformance/agents", checkout / "conformance/agents")
    shutil.copy(ROOT / "Makefile", checkout)
    for app in ("my_bot.py", "app.py"):
        shutil.copy(ROOT / "docs/examples/ten_line_app.py", checkout / app)
    environment = checkout / ".venv"
    venv.create(environment, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(environment)})
    Path(packages, "packages.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    python = environment / "bin/python"
    script = (Path(sys.executable).parent / "amplifier-slack").read_text().partition("\n")[2]
    (environment / "bin/amplifier-slack").write_text(f"#!{python}\n{script}")
    (environment / "bin/amplifier-slack").chmod(0o755)
    (environment / "place").write_text(str(checkout))
    for made in ("requirements.lock", "pyproject.toml"):
        (checkout / made).touch()
    (environment / "runtime.done").touch()
    (home / ".local/share/amplifier-slack").mkdir(parents=True)
    talk(home / ".local/share/amplifier-slack/conversations.db")
    return checkout


def talk(store):
    """Keep a conversation in the store of a service."""
    asyncio.run(prepare(f"sqlite:{store}"))
    StoredConversations(store).talk(*(f"message {number}" for number in range(10)), place=CONVERSATION)


async def prepare(url):
    await (await open_run_store(url)).aclose()


class NewUser:
    """A person in a terminal in the checkout, whose Slack is the local one."""

    def __init__(self, checkout, slack):
        self._checkout = checkout
        self._env = {
            "HOME": str(checkout.parent / "home"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PORT": "0",
            "PYTHONUNBUFFERED": "1",
            "CONNECTIONS_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
            **slack.variables,
        }

    async def enter(self, command):
        """Run a command to its end, or until it serves and gets Ctrl-C."""
        serves = next((sign for start, sign in SERVES.items() if command.startswith(start)), None)
        line = re.sub("-m local_slack|amplifier-slack play", r"\g<0> --port 0", command, count=1) if serves else command
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f". .venv/bin/activate && {line.replace(' ID ', f' {CONVERSATION} ')}"),
            cwd=self._checkout,
            env=self._env,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        output = ""
        try:
            async with asyncio.timeout(40):
                async for said in process.stdout:
                    output += said.decode()
                    if serves and serves in output:
                        serves = os.killpg(process.pid, signal.SIGINT)
                code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return code, output


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
async def test_every_command_runs_as_printed(page, checkout):
    assert ".venv/bin/" in (ROOT / page).read_text("utf-8")
    async with LocalSlack() as slack:
        user = NewUser(checkout, slack)
        for command in commands_of(page):
            if isinstance(command, tuple):
                (checkout / command[0]).write_text(command[1])
                continue
            code, output = await user.enter(command)
            interrupted = command.startswith(tuple(SERVES)) and code in {-signal.SIGINT, 128 + signal.SIGINT}
            assert code == 0 or interrupted, f"{command}\n{output}"
            assert "Traceback" not in output, f"{command}\n{output}"
            if command.startswith("make play"):  # a user has talked to the agent on its page
                await asyncio.to_thread(talk, checkout / "workspaces/play/play.db")


def test_every_command_that_cannot_run_is_on_a_page():
    lines = [step for page in PAGES for step in steps_of(page) if isinstance(step, str)]
    assert [start for start in (*CANNOT_RUN, *SERVES) if not any(line.startswith(start) for line in lines)] == []
