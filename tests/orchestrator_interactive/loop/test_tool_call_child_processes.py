"""A tool that starts processes can end them, however its run ends: it hears of it, and the run waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agents import ScriptedTool, call, make_agent, say, soon, use

from orchestrator_interactive.modules import tool_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents import Agent

# A shell with a child of its own; each of them holds the pipe open for as long as it lives.
FAMILY = "sleep 600 & echo started; wait"


class Shell:
    """A tool at work in a process group, and a pipe that ends when nobody of the group is left."""

    def __init__(self) -> None:
        self.ended, self._held = os.pipe()
        self.processes: list[asyncio.subprocess.Process] = []
        self.is_up = asyncio.Event()

    async def run(self, _input: dict[str, Any]) -> None:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", FAMILY, stdout=asyncio.subprocess.PIPE, pass_fds=(self._held,), start_new_session=True
        )
        self.processes.append(process)
        os.close(self._held)
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            self.is_up.set()
            await process.wait()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def all_gone(self) -> None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.ended, gone.set)
        try:
            await soon(gone.wait())
        finally:
            loop.remove_reader(self.ended)
        assert os.read(self.ended, 1) == b""


@pytest.fixture
def shell() -> Iterator[Shell]:
    shell = Shell()
    yield shell
    os.close(shell.ended)


def _stop_gracefully(agent: Agent, _run: asyncio.Task[str]) -> None:
    agent.stop()


def _stop_immediately(agent: Agent, _run: asyncio.Task[str]) -> None:
    agent.stop(immediate=True)


def _cancel(_agent: Agent, run: asyncio.Task[str]) -> None:
    run.cancel()


@pytest.mark.parametrize("end", [_stop_gracefully, _stop_immediately, _cancel])
async def test_none_is_left_when_the_run_is_ended(end: Any, shell: Shell) -> None:
    agent = await make_agent(call(use("shell", "a")), tools=[ScriptedTool("shell", shell.run)], stop_grace_s=0.01)
    run = agent.start()
    await soon(shell.is_up.wait())
    end(agent, run)
    await soon(asyncio.wait([run]))
    assert shell.processes[0].returncode == -signal.SIGKILL
    await shell.all_gone()


@pytest.mark.parametrize("limit", ["tool_timeout_s", "max_duration_s"])
async def test_none_is_left_when_the_tool_takes_too_long(limit: str, shell: Shell) -> None:
    agent = await make_agent(
        call(use("shell", "a")),
        say("It took too long."),
        tools=[ScriptedTool("shell", shell.run)],
        stop_grace_s=0.01,
        **{limit: 1},
    )
    assert await agent.run() == "It took too long."
    assert shell.processes[0].returncode == -signal.SIGKILL
    await shell.all_gone()


async def test_an_urgent_message_leaves_them_alone_and_a_stop_ends_them(shell: Shell) -> None:
    agent = await make_agent(call(use("shell", "a")), say("Still at it."), tools=[ScriptedTool("shell", shell.run)])
    run = agent.start()
    await soon(shell.is_up.wait())
    agent.inject("!how far is it")
    await agent.progress.reached("text")
    assert shell.processes[0].returncode is None
    agent.stop(immediate=True)
    await soon(run)
    assert shell.processes[0].returncode == -signal.SIGKILL
    await shell.all_gone()


def child_processes() -> set[str]:
    children = (path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
    return {pid for pids in children for pid in pids}


@pytest.mark.parametrize("end", [_stop_gracefully, _stop_immediately, _cancel])
async def test_none_is_left_of_many_searches_when_the_run_is_ended(end: Any, tmp_path: Path) -> None:
    (tmp_path / "trap.txt").write_text("a" * 1_000 + "!")
    searches = [use("search_files", f"c{number}", query="(a+)+$", regex=True) for number in range(50)]
    agent = await make_agent(call(*searches), stop_grace_s=0.01)
    await tool_filesystem.mount(agent.coordinator, {"root": str(tmp_path)})
    before = child_processes()
    run = agent.start()
    while len(child_processes() - before) < 2:  # noqa: ASYNC110 - a process that has started tells nobody
        await asyncio.sleep(0.001)
    end(agent, run)
    await soon(asyncio.wait([run]))

    async def all_gone() -> None:
        while child_processes() - before:  # noqa: ASYNC110 - nor does one that has ended
            await asyncio.sleep(0.001)

    await soon(all_gone())
