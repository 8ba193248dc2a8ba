"""Validate a module in a subprocess, which it may hang, exit or crash without harm. Messages cross it as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import TypeAdapter

from orchestrator_interactive.validation.module import ValidationOrder, run_checks
from orchestrator_interactive.validation.report import Report, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.runner import CANCEL_GRACE_S, Message, ValidationStep, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.report import ModuleType

TIME_LIMIT_S = 10.0
# Added to a step's own limit: for its cancellation, and for slow machines.
_EXTRA_S = 3 * CANCEL_GRACE_S
_REST = ValidationFinding(
    "the remaining checks", "not checked", "The validation ended there.", "Fix the problems above, then validate again."
)
_MESSAGES: TypeAdapter[Message] = TypeAdapter(Message)


def validate(
    path: Path,
    module_type: ModuleType | None = None,
    config: Mapping[str, Any] | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    tool_input: Mapping[str, Any] | None = None,
) -> Report:
    """Check the structure and behaviour of a module against the contract of its type.

    Args:
        path: a project, a package, or a Python file.
        module_type: the expected type; detected by default.
        config: the module's configuration, as in a mount plan; JSON values.
        time_limit_s: time limit of one check, in seconds.
        tool_input: input for a call of its tool, which may have side effects; for several tools, a dict by tool name.

    Raises:
        ModuleNotFoundError: there is no module at the path, or more than one.
    """
    given = None if tool_input is None else dict(tool_input)
    order = ValidationOrder(Path(path), module_type, dict(config or {}), time_limit_s, given)
    subject, findings = order.subject(), list[ValidationFinding]()
    step = ValidationStep("the start of the validation", 60.0)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        tempfile.TemporaryFile() as output,
        _process(order, home, output.fileno()) as (process, connection),
    ):
        problem = ""
        while not problem:
            if not connection.poll(step.limit_s + _EXTRA_S):
                problem = f"It blocks the process for more than {step.limit_s:g} seconds"
                break
            try:
                data = connection.recv_bytes()
            except EOFError:
                problem = _exit_reason(process, output.fileno())
                break
            match _MESSAGES.validate_json(data) if data else None:
                case ValidationStep() as step:
                    pass
                case ValidationFinding() as finding:
                    findings.append(finding)
                case ValidatedModule() as found:
                    subject = replace(found, path=str(path))
                case None:
                    return Report(subject, tuple(findings))
    problem = f"{problem} (it was busy with {step.doing})."
    fix = "Await long operations or use run_blocking(); do not exit the process."
    return Report(subject, (*findings, ValidationFinding("the process continues", "failed", problem, fix), _REST))


@contextmanager
def _process(order: ValidationOrder, home: str, output: int) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """Start a subprocess with this order; afterwards kill it and the processes that it started."""
    reads, writes = os.pipe()
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()", str(writes)]
    direct = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1")))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NO_PROXY": direct, "no_proxy": direct}
    absolute = asdict(replace(order, path=order.path.expanduser().resolve()))
    with Connection(reads, writable=False) as connection, tempfile.TemporaryFile() as orders:
        orders.write(json.dumps(absolute, default=str).encode())
        orders.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - this very program
                command,
                cwd=home,
                env=environment,
                stdin=orders,
                stdout=output,
                stderr=output,
                pass_fds=(writes,),
                start_new_session=True,
            )
        finally:
            os.close(writes)
        try:
            yield process, connection
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _exit_reason(process: subprocess.Popen[bytes], output: int) -> str:
    try:
        code = process.wait(_EXTRA_S)
    except subprocess.TimeoutExpired:
        return "It closes files that are not its own"
    how = f"It ends the process by the signal {signal.Signals(-code).name}" if code < 0 else "It ends the process"
    os.lseek(output, 0, os.SEEK_SET)
    lines = os.read(output, 1_000_000).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{how}; its last output: {shortened(last)}" if last else how


def main() -> None:
    """Run the checks in the subprocess: read the order from stdin and write messages to a pipe."""
    out = Connection(int(sys.argv[1]), readable=False)
    fields = json.loads(sys.stdin.buffer.read())
    order = ValidationOrder(**{**fields, "path": Path(fields["path"])})
    # Files that a module keeps for its sessions, such as logs, must not go into the user's home.
    os.environ["HOME"] = str(Path.cwd())
    # The last output line of this process is reported as the module's; it must not be ours.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    logging.basicConfig(level=logging.WARNING)

    async def run() -> None:
        await run_checks(order, lambda message: out.send_bytes(_MESSAGES.dump_json(message)), Path.cwd())
        out.send_bytes(b"")
        # Exit without waiting for the module's tasks, threads and exit handlers (those of amplifier-core may crash).
        os._exit(0)

    asyncio.run(run())
