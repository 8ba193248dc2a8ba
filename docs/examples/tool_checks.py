"""`tool-checks`: runs a configured command and kills all of its processes when the call ends."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pydantic import Field

from orchestrator_interactive.config import Options, schema, validate
from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult, report_progress, run_blocking
from orchestrator_interactive.kernel.interop import to_local_coordinator


class ChecksOptions(Options):
    command: list[str] = Field(min_length=1)
    timeout_s: float = Field(default=300, gt=0)


class ChecksInput(Options):
    pass


class ChecksTool:
    name = "run_checks"
    description = "Run the project's checks and return their output."
    input_schema = schema(ChecksInput)

    def __init__(self, options: ChecksOptions) -> None:
        self._command = options.command
        self.timeout_s = options.timeout_s

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        with process_group(self._command) as process:
            output = await run_blocking(self, read_output, process)
        return ToolResult(success=process.returncode == 0, output=output)


@contextmanager
def process_group(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process in its own process group; kill the group when the block exits."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(OSError):  # all processes have exited
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_output(process: subprocess.Popen[str]) -> str:
    lines = []
    with process.stdout as stdout:
        for line in stdout:
            report_progress(line)
            lines.append(line)
    # Wait without reaping: the id of a reaped process can be reused, and `killpg` would then kill another group.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return "".join(lines)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> ChecksTool:
    tool = ChecksTool(validate(ChecksOptions, config, "tool-checks"))
    await to_local_coordinator(coordinator).mount("tools", tool)
    return tool
