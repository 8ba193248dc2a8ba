"""Looking for text in the files of a workspace."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.kernel import report
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.modules.tool_filesystem.workspace import Workspace

TIME_LIMIT_S = 3.0
_MAX_LINE = 2_000  # characters of a line that are looked at
_MAX_FILE_BYTES = 2_000_000  # larger files are data rather than text
_MAX_TOTAL_CHARACTERS = 20_000_000
_FILES_A_REPORT = 500
_MATCHER = Path(__file__).with_name("match_lines.py")


class Line(NamedTuple):
    path: str
    number: int
    text: str


def lines_with(workspace: Workspace, path: str, text: str, *, ignore_case: bool, limit: int) -> list[Line]:
    """The first lines that contain a text."""
    wanted = text.casefold() if ignore_case else text
    lines = _lines(workspace, path, time.monotonic() + TIME_LIMIT_S)
    found = (line for line in lines if wanted in (line.text.casefold() if ignore_case else line.text))
    return list(islice(found, limit))


async def lines_matching(workspace: Workspace, path: str, pattern: str, *, ignore_case: bool, limit: int) -> list[Line]:
    """The first lines that match a regular expression.

    Raises:
        WorkspaceError: the expression is malformed, or takes too long.
    """
    deadline = time.monotonic() + TIME_LIMIT_S
    job = {"pattern": pattern, "ignore_case": ignore_case, "limit": limit, "cpu_s": math.ceil(TIME_LIMIT_S)}
    lines, written_down = await asyncio.to_thread(_prepared, workspace, path, deadline, job)
    answer = await _ask_matcher(written_down, max(1.0, deadline - time.monotonic()))
    if reason := answer.get("error"):
        raise WorkspaceError(f"'{pattern}' is no regular expression: {reason}. Correct it, or search without regex.")
    return [lines[index] for index in answer["matches"]]


def _prepared(workspace: Workspace, path: str, deadline: float, job: dict[str, Any]) -> tuple[list[Line], bytes]:
    lines = list(_lines(workspace, path, deadline))
    return lines, json.dumps({**job, "lines": [line.text for line in lines]}).encode()


async def _ask_matcher(job: bytes, timeout_s: float) -> dict[str, Any]:
    command = (sys.executable, "-I", str(_MATCHER))
    # It needs nothing of this process's environment, which holds secrets.
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={})
    try:
        async with asyncio.timeout(timeout_s):
            said, _ = await process.communicate(job)
    except TimeoutError as e:
        raise _too_long() from e
    finally:  # a stop comes this way, too
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise _too_long()
    answer: dict[str, Any] = json.loads(said)
    return answer


def _too_long() -> WorkspaceError:
    return WorkspaceError("This regular expression takes too long. Use a simpler one, or search without regex.")


def _lines(workspace: Workspace, path: str, deadline: float) -> Iterator[Line]:
    room = _MAX_TOTAL_CHARACTERS
    for searched, entry in enumerate(workspace.walk(path, deadline=deadline)):
        if searched and not searched % _FILES_A_REPORT:
            report(f"{searched:,} files searched")
        if entry.size_bytes > _MAX_FILE_BYTES:
            continue
        for number, text in enumerate(_text_of(workspace, entry.path).split("\n"), 1):
            room -= len(text)
            if room < 0 or time.monotonic() > deadline:
                return
            yield Line(entry.path, number, text[:_MAX_LINE].rstrip("\r"))


def _text_of(workspace: Workspace, path: str) -> str:
    try:
        with workspace.open(path) as file:
            data = file.read(_MAX_FILE_BYTES)
    except WorkspaceError:  # gone, or not ours to read: nothing to find in it
        return ""
    return "" if b"\0" in data else data.decode("utf-8", "replace")
