"""Validate a module in a subprocess, which it may hang, exit or crash without harm."""

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

from orchestrator_interactive.validation.module import ValidationOrder, run_checks, subject_of
from orchestrator_interactive.validation.report import Report, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.runner import CANCEL_GRACE_S, ValidationStep, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.report import ModuleType
    from orchestrator_interactive.validation.runner import Message

TIME_LIMIT_S = 10.0
# Added to a step's own limit: for its cancellation, and for slow machines.
_EXTRA_S = 3 * CANCEL_GRACE_S
_STARTING = ValidationStep("the start of the validation", 60.0)
_CONTINUES = ValidationFinding(
    "the process continues", "failed", fix="Await long operations or use run_blocking(); do not exit the process."
)
_REST = ValidationFinding(
    "the remaining checks", "not checked", "The validation ended there.", "Fix the problems above, then validate again."
)
_KINDS = {each.__name__: each for each in (ValidationStep, ValidationFinding, ValidatedModule)}


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
    subject, step, findings = subject_of(order), _STARTING, list[ValidationFinding]()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        tempfile.TemporaryFile() as output,
        _process(order, home, output.fileno()) as (process, connection),
    ):
        while True:
            message = _receive(connection, step.limit_s + _EXTRA_S)
            match message:
                case ValidationStep():
                    step = message
                case ValidationFinding():
                    findings.append(message)
                case ValidatedModule():
                    subject = replace(message, path=str(path))
                case None:
                    return Report(subject, tuple(findings))
                case TimeoutError():
                    findings += _aborted(step, f"It blocks the process for more than {step.limit_s:g} seconds")
                case EOFError():
                    findings += _aborted(step, _exit_reason(process, output.fileno()))
            if isinstance(message, Exception):
                return Report(subject, tuple(findings))


def _receive(connection: Connection, within_s: float) -> Message | Exception | None:
    """Return the next message, `None` after the last one, or the error that prevents further ones."""
    if not connection.poll(within_s):
        return TimeoutError()
    try:
        data = connection.recv_bytes()
    except EOFError as e:
        return e
    return parse(data) if data else None


def _aborted(step: ValidationStep, problem: str) -> list[ValidationFinding]:
    doing = "" if step.rule else f" (it was busy with {step.doing})"
    rule = step.rule or _CONTINUES
    return [replace(rule, outcome="failed", problem=f"{problem}{doing}.", fix=_CONTINUES.fix), _REST]


def dump(message: Message) -> bytes:
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode()


def parse(data: bytes) -> Message:
    fields: dict[str, Any] = json.loads(data)
    kind = _KINDS[fields.pop("kind")]
    if "others" in fields:
        fields["others"] = tuple((module_type, by) for module_type, by in fields["others"])
    if fields.get("doing") is not None and fields["rule"] is not None:
        fields["rule"] = ValidationFinding(**fields["rule"])
    message: Message = kind(**fields)
    return message


@contextmanager
def _process(order: ValidationOrder, home: str, output: int) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """Start a subprocess with this order; afterwards kill it and the processes that it started."""
    reads, writes = os.pipe()
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()", str(writes)]
    direct = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1")))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NO_PROXY": direct, "no_proxy": direct}
    with Connection(reads, writable=False) as connection:
        try:
            process = subprocess.Popen(  # noqa: S603 - this very program
                command,
                cwd=home,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(writes,),
                start_new_session=True,
            )
        finally:
            os.close(writes)
        try:
            assert process.stdin is not None  # noqa: S101 - a pipe was asked for
            with process.stdin as stdin:
                absolute = asdict(replace(order, path=order.path.expanduser().resolve()))
                stdin.write(json.dumps(absolute, default=str).encode())
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
        await run_checks(order, lambda message: out.send_bytes(dump(message)), Path.cwd())
        out.send_bytes(b"")
        # Exit without waiting for the module's tasks, threads and exit handlers (those of amplifier-core may crash).
        os._exit(0)

    asyncio.run(run())
