"""Calls of `bash`: results, limits, approval, and that no process outlives its call."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from agents.after_run import results
from agents.milestones import soon
from agents.provider import call, say, use
from agents.session import make_agent
from sandboxes import require

from orchestrator_interactive.kernel import ModuleCoordinator
from orchestrator_interactive.kernel.tool_support import reporting
from orchestrator_interactive.modules import hooks_approval, tool_bash
from orchestrator_interactive.modules.tool_bash import sandbox

# Commands that try to outlive their call; {mark} is in their command line.
SURVIVORS = {
    "in the background": "sleep 300.{mark} & echo begun",
    "without a terminal": "nohup sleep 300.{mark} >/dev/null 2>&1 & echo begun",
    "in another session": "setsid sleep 300.{mark} >/dev/null 2>&1 & echo begun",
    "forked twice": "(setsid sh -c 'sleep 300.{mark} & sleep 300.{mark} &' >/dev/null 2>&1 &); echo begun",
    "without SIGTERM": "trap '' TERM HUP INT; (trap '' TERM; sleep 300.{mark}) & echo begun; sleep 300.{mark}",
    "in the foreground": "echo begun; sleep 300.{mark}",
    "stopped": "sleep 300.{mark} & kill -STOP $!; echo begun; wait",
    "many": "for i in $(seq 50); do sleep 300.{mark} & done; echo begun; wait",
}


def alive(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"300.{mark}" in line and state != "Z":
                found.append(line)
    return found


@pytest.fixture
def mark() -> str:
    return str(uuid4().int)[:12]


@pytest.mark.parametrize("name", SURVIVORS)
async def test_no_process_outlives_its_call(run: Any, mark: str, name: str) -> None:
    found = await run(SURVIVORS[name].format(mark=mark), timeout_s=1.5)
    assert "begun" in found
    assert alive(mark) == []


@pytest.mark.parametrize("name", SURVIVORS)
async def test_a_cancelled_call_leaves_no_process(mounted: Any, kind: str, mark: str, name: str) -> None:
    tool, begun = await mounted(sandbox=kind), asyncio.Event()

    async def work() -> None:
        with reporting(lambda _: begun.set()):
            await tool.execute({"command": f"{SURVIVORS[name].format(mark=mark)}; sleep 300.{mark}"})

    working = asyncio.create_task(work())
    await soon(begun.wait())
    assert alive(mark)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert alive(mark) == []


KILLED = """
import asyncio, sys
from orchestrator_interactive.kernel.session import AmplifierSession
from orchestrator_interactive.modules import tool_bash
async def main():
    coordinator = AmplifierSession({"session": {"orchestrator": "x", "context": "y"}}).coordinator
    await tool_bash.mount(coordinator, {"root": sys.argv[1], "sandbox": sys.argv[2], "without_approval": True})
    await coordinator.get("tools", "bash").execute({"command": sys.argv[3]})
asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["in the foreground", "in another session", "without SIGTERM"])
async def test_a_killed_service_leaves_no_process(workspace: Path, kind: str, mark: str, name: str) -> None:
    command = f"{SURVIVORS[name].format(mark=mark)}; sleep 300.{mark}"
    service = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(workspace), kind, command)
    async with asyncio.timeout(20):
        while not alive(mark):  # noqa: ASYNC110 - nothing reports processes
            await asyncio.sleep(0.02)
        os.kill(service.pid, signal.SIGKILL)
        await service.wait()
        while alive(mark):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2; exit 3", "exit code 3"),
        ("true", "exit code 0"),
        ("nonexistent-command", "exit code 127"),
        ("kill -SEGV $BASHPID & wait $!", "exit code 139"),
        ("exit 300", "exit code 44"),
        ("cat", "exit code 0"),
        ('read x; echo "[$x]"', "[]"),
        ("printf '\\033[31mred\\033[0m\\a'", "red"),
        ("printf 'begin\\rend\\n'", "end"),
        ("printf '\\xff\\xfe'", "��"),
        ("tty", "not a tty"),
    ],
)
async def test_a_result_has_the_exit_code_and_the_plain_output(run: Any, command: str, expected: str) -> None:
    found = await run(command)
    assert expected in found
    assert "\x1b" not in found
    assert "begin" not in found


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("sleep 30", {"timeout_s": 0.5}, "Ended after 0.5 seconds"),
        ("while :; do :; done", {"timeout_s": 0.5}, "Ended after 0.5 seconds"),
        ("yes", {"timeout_s": 1}, "Ended after 1 seconds"),
        ("cat /dev/zero | tr '\\0' x", {"timeout_s": 1}, "Ended after 1 seconds"),
        ("head -c 5M /dev/zero > big; ls -l big", {"file_mb": 2}, "2097152"),
        ("python3 -c 'print(len(bytearray(10**9)))'", {"memory_mb": 256}, "MemoryError"),
        ("ulimit -n", {"open_files": 64}, "64"),
        ("ulimit -n 100000", {"open_files": 64}, "cannot modify limit"),
        ("ulimit -v unlimited", {"memory_mb": 256}, "cannot modify limit"),
    ],
)
async def test_a_command_has_limits(run: Any, command: str, options: dict[str, Any], expected: str) -> None:
    assert expected in await run(command, **options)


async def test_a_command_that_fills_the_workspace_is_ended(run: Any, workspace: Path) -> None:
    command = "for i in $(seq 1000); do head -c 2M /dev/zero > $i; sleep 0.01; done"
    expected = "the workspace has more than 8 MB. Delete files first."
    assert f"Ended: {expected}" in await run(command, quota_mb=8)
    assert await run("echo x", quota_mb=8) == f"Not started: {expected}"


async def test_no_command_runs_without_the_free_space_that_agents_must_leave(run: Any) -> None:
    assert (await run("echo x", reserve_mb=10**9)).startswith("Not started: the disk has less than 1,000,000,000 MB")


async def test_a_long_output_is_cut_and_a_file_has_all_of_it(run: Any, coordinator: ModuleCoordinator) -> None:
    saved = {}

    async def save(name: str, text: str) -> str:
        saved[name] = text
        return "results/bash-1.txt"

    coordinator.register_capability("workspace.save", save)
    found = await run("seq 1 100000", max_output_chars=2_000)
    assert len(found) < 2_300
    assert found.startswith("exit code 0")
    assert "\n1\n2\n" in found
    assert found.endswith("\n100000")
    assert "bytes are left out. results/bash-1.txt has them.]" in found
    assert saved["bash"].count("\n") == 99_999


async def test_the_last_line_is_the_progress(mounted: Any, kind: str) -> None:
    lines: list[str] = []
    tool = await mounted(sandbox=kind)
    with reporting(lines.append):
        await tool.execute({"command": "echo one; sleep 0.3; echo two"})
    assert lines == ["one", "two"]


RULES = [{"command": "echo *", "level": "allow"}, {"command": "rm", "level": "deny"}]


@pytest.mark.parametrize(
    ("command", "has_hook", "answer", "expected"),
    [
        ("echo x", False, None, "exit code 0"),
        ("date", False, None, "No user can approve commands here"),
        ("rm x", False, None, "This command is not allowed: a rule denies `rm x`."),
        ("echo x", True, None, "exit code 0"),
        ("date", True, "Allow", "exit code 0"),
        ("date", True, "Deny", "User denied"),
        ("rm x", True, "Allow", "is not allowed here (bash: a rule denies `rm x`)"),
        ("echo $(rm x)", True, "Allow", "is not allowed here"),
        ("echo $X", True, "Deny", "User denied"),
    ],
)
async def test_commands_need_approval_or_a_rule(
    workspace: Path, command: str, answer: str | None, expected: str, *, has_hook: bool
) -> None:
    require("bubblewrap", "landlock")
    asked = []

    class Approvals:
        async def request_approval(self, prompt: str, *_: Any) -> str:
            asked.append(prompt)
            return answer or "Deny"

    agent = await make_agent(call(use("bash", "a", command=command)), say("ok"), approvals=Approvals())
    if has_hook:
        await hooks_approval.mount(agent.coordinator, {})
    await tool_bash.mount(agent.coordinator, {"root": str(workspace), "rules": RULES})
    await agent.run()
    assert expected in str(await results(agent))
    assert bool(asked) is (answer is not None and "rm" not in command)


async def test_people_see_the_whole_command(mounted: Any, kind: str) -> None:
    tool = await mounted(sandbox=kind)
    command = "echo 1\n```\n" + "x" * 5_000
    shown = await tool.preview({"command": command, "description": "Looks."})
    assert shown.startswith("Looks.\n````\n")
    assert command in shown
    assert "network: none" in shown
    assert tool.label({"command": command}) == "Running: echo 1 ``` " + "x" * (60 - len("echo 1 ``` ")) + "…"
    assert tool.label(None) == "Running a command"


async def test_people_see_the_hosts_that_a_command_reaches(mounted: Any) -> None:
    require("bubblewrap")
    network = {"allow": ["docs.example.org"], "credentials": {"api.example.org": {"Authorization": "Bearer x"}}}
    shown = await (await mounted(network=network)).preview({"command": "ls"})
    assert shown.endswith("network: docs.example.org, api.example.org (with credentials)")


async def test_without_a_sandbox_that_works_nothing_is_mounted(
    mounted: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require("landlock")
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.problem_of.cache_clear()
    try:
        with pytest.raises(ValueError, match="Install bubblewrap") as refused:
            await mounted(sandbox="bubblewrap")
        assert "bubblewrap is not installed" in str(refused.value)
        with pytest.raises(ValueError, match="needs bubblewrap"):
            await mounted(sandbox="auto", network={"allow": ["example.org"]})
        assert await mounted(sandbox="auto")  # by Landlock
    finally:
        sandbox.problem_of.cache_clear()


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"sandbox": "docker"}, "sandbox"),
        ({"read_only_paths": ["/nowhere"]}, "/nowhere must be the absolute path"),
        ({"read_only_paths": ["docs"]}, "must be the absolute path"),
        ({"rules": [{"command": "*", "level": "allow"}]}, "words of a command"),
        ({"network": {"allow": []}}, "allow"),
        ({"network": {"allow": ["http://example.org"]}}, "not the name of a host"),
        ({"timeout": 3}, "'timeout'"),
    ],
)
async def test_a_configuration_that_is_not_possible_is_refused(
    coordinator: ModuleCoordinator, config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        await tool_bash.mount(coordinator, config)
