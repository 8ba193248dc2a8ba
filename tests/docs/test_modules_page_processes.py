"""The page's tool that starts processes: they end with its call."""

from __future__ import annotations

import asyncio
import os
import shlex

import pytest
from agents import soon

from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.testing import MockProvider

CALL = ToolCall(id="1", name="run_checks", arguments={})
# Children and grandchildren that hold the pipe open.
FAMILY = "(sleep 30 & sleep 30) & sleep 30 &"


class Pipe:
    """A named pipe; its end is reached when the last process that holds it open has ended."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._reader = asyncio.StreamReader()

    async def open(self):
        """Read from the pipe before any process writes to it."""
        self._own_end = os.open(self.path, os.O_WRONLY)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(self._end, "rb")
        )
        return transport

    async def end(self):
        os.close(self._own_end)
        assert await soon(self._reader.read()) == b""


@pytest.fixture
async def pipe(tmp_path):
    pipe = Pipe(tmp_path / "pipe")
    transport = await pipe.open()
    yield pipe
    transport.close()


@pytest.fixture
def start(examples, make_session):
    """Create a session whose tool runs a command."""

    def start(command, **config):
        entry = {"module": "tool-checks", "source": str(examples / "tool_checks.py")}
        plan = {
            "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
            "tools": [{**entry, "config": {"command": command, **config}}],
        }
        return make_session(plan, MockProvider([CALL, "Done."]))

    return start


@pytest.fixture
def running(pipe, start):
    """Create a session whose tool runs shell lines; all their processes hold the pipe open."""
    return lambda lines, **config: start(["sh", "-c", f"exec 9>{shlex.quote(str(pipe.path))}\n{lines}"], **config)


async def result_in(session):
    (result,) = [row for row in await session.coordinator.get("context").get_messages() if row["role"] == "tool"]
    return result


async def test_an_immediate_stop_ends_children_and_grandchildren(pipe, running):
    progress: list[str] = []
    async with running(f"{FAMILY} echo started; wait") as session:

        async def stop_at_the_first_line(event, data):
            if event == "tool:progress":
                progress.append(data["text"])
                session.coordinator.get_capability("orchestrator.stop")(immediate=True)

        await soon(session.execute("Check it.", on_progress=stop_at_the_first_line))
        await pipe.end()
        assert progress == ["started"]
        assert "its outcome is unknown" in (await result_in(session))["content"]


async def test_the_time_limit_ends_all_processes(pipe, running):
    async with running(f"{FAMILY} wait", timeout_s=0.2) as session:
        assert await soon(session.execute("Check it.")) == "Done."
        await pipe.end()
        assert "its outcome is unknown" in (await result_in(session))["content"]


async def test_background_processes_end_with_the_call(pipe, running):
    async with running("(sleep 30 & sleep 30) >/dev/null 2>&1 & echo all is well") as session:
        assert await soon(session.execute("Check it.")) == "Done."
        await pipe.end()
        assert (await result_in(session))["content"] == "all is well\n"


async def test_a_failed_command_is_a_failed_call_with_its_output(running):
    async with running("echo two are red; exec >/dev/null 2>&1; exit 1") as session:
        await soon(session.execute("Check it."))
        result = await result_in(session)
        assert (result["content"], result["metadata"]) == ("two are red\n", {"is_error": True})


async def test_a_missing_command_is_a_failed_call(start):
    async with start(["no-such-command"]) as session:
        await soon(session.execute("Check it."))
        assert "no-such-command" in (await result_in(session))["content"]
