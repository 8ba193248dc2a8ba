"""Validate a module in a subprocess, which it may hang, exit or crash without harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.loading.location import locate
from orchestrator_interactive.validation.ipc import dump_order, parse
from orchestrator_interactive.validation.report import Check, Report, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.runner import CANCEL_GRACE_S, ValidationStep, shortened
from orchestrator_interactive.validation.validator import Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.report import ModuleType

TIME_LIMIT_S = 10.0
# Added to a step's own limit: for its cancellation, and for slow machines.
_EXTRA_S = 3 * CANCEL_GRACE_S

_STARTING = ValidationStep("the start of the validation", 60.0)
_SURVIVES = Check(
    rule="the process continues",
    section="Validation Checklist",
    fix="Await long operations or use run_blocking(); do not exit the process.",
)


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
    order = Order(locate(Path(path)), module_type, dict(config or {}), time_limit_s, given)
    return _Observer(order).report()


class _Observer:
    """Receive the messages of the validation process, and abandon it after a timeout."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._subject = ValidatedModule(str(order.location.path), order.location.module_id)
        self._findings: list[ValidationFinding] = []
        self._doing = _STARTING

    def report(self) -> Report:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
            tempfile.TemporaryFile() as output,
            _process(self._order, home, output.fileno()) as (process, connection),
        ):
            self._listen(process, connection, output.fileno())
        return Report(self._subject, tuple(self._findings))

    def _listen(self, process: subprocess.Popen[bytes], connection: Connection, output: int) -> None:
        while True:
            if not connection.poll(self._doing.limit_s + _EXTRA_S):
                self._abort(f"It blocks the process for more than {self._doing.limit_s:g} seconds")
                return
            try:
                data = connection.recv_bytes()
            except EOFError:
                self._abort(_exit_reason(process, output))
                return
            if not data:
                return
            self._note(parse(data))

    def _note(self, message: ValidationStep | ValidationFinding | ValidatedModule) -> None:
        match message:
            case ValidationStep():
                self._doing = message
            case ValidationFinding():
                self._findings.append(message)
            case ValidatedModule():
                self._subject = message

    def _abort(self, problem: str) -> None:
        check = self._doing.check or _SURVIVES
        doing = "" if self._doing.check else f" (it was busy with {self._doing.doing})"
        self._findings.append(ValidationFinding(check, "failed", f"{problem}{doing}.", _SURVIVES.fix))
        rest = Check("the remaining checks", _SURVIVES.section, _SURVIVES.fix)
        reason = "The validation ended there."
        self._findings.append(
            ValidationFinding.not_checked(rest, reason, "Fix the problems above, then validate again.")
        )


@contextmanager
def _process(order: Order, home: str, output: int) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    reads, writes = os.pipe()
    command = [sys.executable, "-P", "-m", __package__, str(writes)]
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
            _send(process, dump_order(order))
            yield process, connection
        finally:
            _end(process)


def _send(process: subprocess.Popen[bytes], order: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with process.stdin as stdin:
        stdin.write(order)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and the processes that it started."""
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
