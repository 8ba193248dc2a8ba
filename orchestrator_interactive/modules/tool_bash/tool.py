"""One call of `bash`: the command, its output, its limits, and its end."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections import deque
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.tool_support import current_call, report_progress, run_blocking
from orchestrator_interactive.modules.tool_bash.confined import GRACE_S, descendants, send
from orchestrator_interactive.modules.tool_bash.proxy import serving_proxy
from orchestrator_interactive.modules.tool_bash.rules import Verdict, evaluate
from orchestrator_interactive.modules.tool_filesystem.quota import MB, free_bytes
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.modules.tool_bash import BashOptions
    from orchestrator_interactive.modules.tool_bash.sandbox import Sandbox

_COMMAND_CHARS = 50_000
_LABEL_CHARS = 60
_KEPT_BYTES = 4_000_000  # of the output for a file
_PIECE_BYTES = 64 * 1024
_LINE_CHARS = 160
_ENDED_WITHIN_S = 3.0
_LOOK_EVERY_S = 2.0
_LOOKED_WITHIN_S = 0.5
_SIGTERM, _SIGKILL = 15, 9
# Sequences that move a cursor or set a colour, and other control characters.
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]")


class BashInput(Options):
    command: str = Field(min_length=1, max_length=_COMMAND_CHARS, description="The command, for bash.")
    description: str = Field("", max_length=200, description="What it does, in a few words, for people.")
    timeout_s: float | None = Field(None, gt=0, description="Time limit in seconds.")


class BashTool(ValidatedTool[BashInput]):
    """Runs commands in a sandbox.

    A result has the exit code and the output, standard error included; a command that fails is a result, too.
    """

    name = "bash"
    side_effect_free: ClassVar[bool] = False
    destructive: ClassVar[bool] = True
    input_kind = BashInput
    refusals = (ValueError, OSError)

    def __init__(self, coordinator: ModuleCoordinator, options: BashOptions, sandbox: Sandbox) -> None:
        self._coordinator = coordinator
        self._options = options
        self._sandbox = sandbox
        hosts = ", ".join((*options.network.allow, *options.network.credentials)) if options.network else ""
        # The command has its own time limit.
        self.timeout_s = options.max_timeout_s + 60
        self.description = (
            "Run a command in the workspace folder, with bash. It has no terminal and no input, and every process that "
            f"it starts ends with it. {f'It can reach only {hosts}.' if hosts else 'It has no network.'}"
            + "".join(
                f" For {host}, write http://{host}/…; credentials are added on the way."
                for host in (options.network.credentials if options.network else ())
            )
        )

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        """Return a status text for people; accepts any input."""
        given = input if isinstance(input, dict) else {}
        text = " ".join(str(given.get("description") or given.get("command") or "").split())
        return f"Running: {text[:_LABEL_CHARS]}{'…' * (len(text) > _LABEL_CHARS)}" if text else "Running a command"

    async def preview(self, input: dict[str, Any]) -> str:  # noqa: A002 - as of `label`
        """Return the whole command as Markdown, for people who are to approve it."""
        wanted = validate(BashInput, input, self.name)
        fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", wanted.command)), 3)
        about = f"{wanted.description}\n" if wanted.description else ""
        network = "none"
        if given := self._options.network:
            others = [each for each in given.allow if each not in given.credentials]
            network = ", ".join([*others, *(f"{each} (with credentials)" for each in given.credentials)])
        return f"{about}{fence}\n{wanted.command}\n{fence}\nsandbox: {self._sandbox.kind}, network: {network}"

    def approval(self, input: dict[str, Any]) -> Verdict | None:  # noqa: A002 - as of `label`
        """Return the decision of the rules about a call; `None`: they have none. See `hooks_approval.policy.decide`."""
        return evaluate(str(input.get("command", "")), self._options.rules)

    def _refuse_unless_allowed(self, command: str) -> None:
        """Raise ValueError for a command that is denied, or that no user has allowed."""
        verdict, call = evaluate(command, self._options.rules), current_call.get()
        if verdict is not None and verdict.level == "deny":
            raise ValueError(f"This command is not allowed: {verdict.reason}.")
        is_decided = call is not None and call.decision is not None
        if not is_decided and not self._options.without_approval and (verdict is None or verdict.level != "allow"):
            raise ValueError(
                "No user can approve commands here: `hooks-approval` is not configured for this agent. Say what you "
                "would have run, and that `rules` or `without_approval` of tool-bash allow commands."
            )

    async def _work(self, wanted: BashInput) -> str:
        self._refuse_unless_allowed(wanted.command)
        timeout_s = min(wanted.timeout_s or self._options.timeout_s, self._options.max_timeout_s)
        await run_blocking(self._sandbox.root, _make, self._sandbox.root)
        if excess := await run_blocking(self._sandbox.root, self._excess):
            raise ValueError(f"Not started: {excess}")
        output, began_s, problem = _Output(self._options.max_output_chars), time.monotonic(), ""
        async with AsyncExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bash-", ignore_cleanup_errors=True)))
            sandbox = self._sandbox
            if self._options.network is not None:
                sandbox = replace(sandbox, proxy=scratch / "proxy.sock")
                await stack.enter_async_context(serving_proxy(self._options.network, scratch / "proxy.sock"))
            words, environment = sandbox.words(wanted.command, scratch)
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **environment},
                cwd=sandbox.root,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(timeout_s):
                    problem = await self._until_ended(process, output)
            except TimeoutError:
                problem = f"Ended after {timeout_s:g} seconds, before it had finished."
            finally:
                await _end(process, sandbox.kind)
        status = problem or _status(process.returncode, time.monotonic() - began_s)
        return "\n".join(filter(None, (status, await self._shown(output))))

    async def _until_ended(self, process: asyncio.subprocess.Process, output: _Output) -> str:
        """Read the output until the process ends; return why it has to be ended, if so."""
        watching = asyncio.create_task(self._until_over_limit())
        reading = asyncio.create_task(_read(process, output))
        try:
            await asyncio.wait([watching, reading], return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await reading
                return ""
            return f"Ended: {await watching}"
        finally:
            for task in (watching, reading):
                task.cancel()
            await asyncio.wait([watching, reading])

    async def _until_over_limit(self) -> str:
        # Nothing reports the size of a folder.
        while not (excess := await run_blocking(self._sandbox.root, self._excess)):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_EVERY_S)
        return excess

    def _excess(self) -> str:
        """Return which limit of the workspace or its disk is exceeded, with a remedy; blank: none."""
        options, root = self._options, self._sandbox.root
        with suppress(OSError):  # a command may remove the folder
            if options.reserve_mb and free_bytes(root) < options.reserve_mb * MB:
                return (
                    f"the disk has less than {options.reserve_mb:,} MB free. Tell the people here that its operator "
                    "must free disk space."
                )
        if options.quota_mb is not None and _size_of(root) > options.quota_mb * MB:
            return f"the workspace has more than {options.quota_mb} MB. Delete files first."
        return ""

    async def _shown(self, output: _Output) -> str:
        if not output.is_cut:
            return output.text
        save, where = self._coordinator.get_capability("workspace.save"), ""
        if save is not None:
            with suppress(ValueError):
                where = f" {await save('bash', output.whole)} has them."
        return output.truncated(where)


class _Output:
    """The output of a command: its beginning, its end, and up to four megabytes of it for a file."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._kept = bytearray()
        self._end: deque[bytes] = deque()
        self._end_bytes = self._total = 0

    def feed(self, piece: bytes) -> None:
        self._total += len(piece)
        self._kept += piece[: max(0, _KEPT_BYTES - len(self._kept))]
        self._end.append(piece)
        self._end_bytes += len(piece)
        while self._end_bytes - len(self._end[0]) > 4 * self._max_chars:
            self._end_bytes -= len(self._end.popleft())

    @cached_property
    def text(self) -> str:
        """The plain text that is kept; read it when everything is fed."""
        return _plain(bytes(self._kept)).strip("\n")

    @property
    def is_cut(self) -> bool:
        return self._total > len(self._kept) or len(self.text) > self._max_chars

    @property
    def whole(self) -> str:
        rest = self._total - len(self._kept)
        return f"{self.text}\n[… {rest:,} more bytes were not kept.]" if rest else self.text

    def truncated(self, where: str) -> str:
        """Return the beginning and the end, and between them how much is left out."""
        part = self._max_chars // 2
        begin, end = self.text[:part], _plain(b"".join(self._end))[-part:]
        left_out = max(self._total - len(begin.encode()) - len(end.encode()), 0)
        return f"{begin}\n[… {left_out:,} bytes are left out.{where}]\n{end.strip()}"


def _plain(content: bytes) -> str:
    text = content.decode(errors="replace").replace("\r\n", "\n")
    lines = (line.rpartition("\r")[2] if "\r" in line else line for line in text.split("\n"))  # as a terminal shows it
    return _CONTROL.sub("", "\n".join(lines))


async def _read(process: asyncio.subprocess.Process, output: _Output) -> None:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    while piece := await process.stdout.read(_PIECE_BYTES):
        output.feed(piece)
        if line := next(filter(str.strip, reversed(_plain(piece[-_LINE_CHARS * 4 :]).split("\n"))), ""):
            report_progress(line[-_LINE_CHARS:])
    await process.wait()


async def _end(process: asyncio.subprocess.Process, kind: str) -> None:
    """End a process and all that it has started, also if the caller is cancelled."""
    ending = asyncio.ensure_future(_ended(process, kind))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait([ending], timeout=_ENDED_WITHIN_S)
        raise


async def _ended(process: asyncio.subprocess.Process, kind: str) -> None:
    if process.returncode is not None:
        return
    draining = asyncio.create_task(_discard(process))
    try:
        await _signalled(process, kind)
    finally:
        draining.cancel()
        await asyncio.wait([draining])


async def _discard(process: asyncio.subprocess.Process) -> None:
    """Read and drop the output: the end of a process is known only at the end of its output."""
    while process.stdout is not None and await process.stdout.read(_PIECE_BYTES):
        pass


async def _signalled(process: asyncio.subprocess.Process, kind: str) -> None:
    inside = await asyncio.to_thread(descendants, process.pid)
    # `confined` passes SIGTERM on, and ends when nothing is left; bubblewrap would end at once.
    send(inside if kind == "bubblewrap" else [process.pid], _SIGTERM)
    grace_s = GRACE_S if kind == "bubblewrap" else _ENDED_WITHIN_S - 1
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await process.wait()
    inside += await asyncio.to_thread(descendants, process.pid)
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    send(inside if kind != "bubblewrap" else [], _SIGKILL)
    with suppress(TimeoutError):  # the kernel ends the namespace of bubblewrap
        async with asyncio.timeout(1):
            while any(map(_is_alive, inside)):  # noqa: ASYNC110 - nothing reports their end
                await asyncio.sleep(0.005)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def _status(code: int | None, took_s: float) -> str:
    if code is None or code < 0:
        return f"It was ended by signal {-(code or 0)} after {took_s:.1f} s."
    return f"exit code {code} ({took_s:.1f} s)"


def _make(root: Path) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)


def _size_of(root: Path) -> int:
    """Return the size of the files in a folder in bytes; after half a second, of the found ones."""
    size, deadline = 0, time.monotonic() + _LOOKED_WITHIN_S
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):
                size += os.lstat(Path(folder, name)).st_blocks * 512
        if time.monotonic() > deadline:
            break
    return size
