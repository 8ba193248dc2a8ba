"""The page's tool that starts processes: however its call ends, all of them have ended."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agents import soon

from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.testing import MockProvider

if TYPE_CHECKING:
    pass

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CALL = ToolCall(id="1", name="run_checks", arguments={})
# Sleepers below sleepers, with the pipe open in all of them.
FAMILY = "(sleep 30 & sleep 30) & sleep 30 &"


class Pipe:
    """A named pipe that processes hold open: it comes to its end with the last of them."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._reader = asyncio.StreamReader()

    async def open(self):
        """Read the end that nobody writes to yet."""
        loop = asyncio.get_running_loop()
        keep_open = os.open(self.path, os.O_WRONLY)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(self._end, "rb")
        )
        self.let_go = lambda: os.close(keep_open)
        return transport

    async def end(self):
        self.let_go()
        assert await soon(self._reader.read()) == b""


@pytest.fixture
async def pipe(tmp_path):
    pipe = Pipe(tmp_path / "pipe")
    transport = await pipe.open()
    yield pipe
    transport.close()


@pytest.fixture
def running(pipe, make_session):
    """A session whose tool runs these shell lines, with the pipe open in all that they start."""

    def make(lines, **config):
        command = ["sh", "-c", f"exec 9>{shlex.quote(str(pipe.path))}\n{lines}"]
        entry = {"module": "tool-checks", "source": str(EXAMPLES / "tool_checks.py")}
        plan = {
            "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
            "tools": [{**entry, "config": {"command": command, **config}}],
        }
        return make_session(plan, MockProvider([CALL, "Done."]))

    return make


async def result_in(session):
    (result,) = [row for row in await session.coordinator.get("context").get_messages() if row["role"] == "tool"]
    return result


async def test_an_immediate_stop_ends_children_and_grandchildren(pipe, running):
    heard: list[str] = []
    async with running(f"{FAMILY} echo started; wait") as session:

        async def stop_at_the_first_line(event, data):
            if event == "tool:progress":
                heard.append(data["text"])
                session.coordinator.get_capability("orchestrator.stop")(immediate=True)

        await soon(session.execute("Check it.", on_progress=stop_at_the_first_line))
        await pipe.end()
        assert heard == ["started"]
        assert "its outcome is unknown" in (await result_in(session))["content"]


async def test_the_time_limit_ends_them(pipe, running):
    async with running(f"{FAMILY} wait", timeout_s=0.2) as session:
        assert await soon(session.execute("Check it.")) == "Done."
        await pipe.end()
        assert "its outcome is unknown" in (await result_in(session))["content"]


async def test_what_the_command_leaves_behind_ends_with_the_call(pipe, running):
    async with running("(sleep 30 & sleep 30) >/dev/null 2>&1 & echo all is well") as session:
        assert await soon(session.execute("Check it.")) == "Done."
        await pipe.end()
        assert (await result_in(session))["content"] == "all is well\n"


async def test_a_check_that_fails_is_a_failed_call_with_its_output(running):
    async with running("echo two are red; exec >/dev/null 2>&1; exit 1") as session:
        await soon(session.execute("Check it."))
        result = await result_in(session)
        assert (result["content"], result["metadata"]) == ("two are red\n", {"is_error": True})


async def test_a_command_that_is_not_there_is_a_failed_call(make_session):
    plan = {
        "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
        "tools": [
            {
                "module": "tool-checks",
                "source": str(EXAMPLES / "tool_checks.py"),
                "config": {"command": ["no-such-command"]},
            }
        ],
    }
    async with make_session(plan, MockProvider([CALL, "Done."])) as session:
        await soon(session.execute("Check it."))
        assert "no-such-command" in (await result_in(session))["content"]
