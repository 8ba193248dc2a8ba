"""Run a command with environment variables that point it to the workspace."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Mapping, Sequence

_GRACE_S = 10.0


@asynccontextmanager
async def child(command: Sequence[str], variables: Mapping[str, str]) -> AsyncIterator[Process]:
    """Run ``command`` while the block runs; then terminate it, and kill it after a grace period.

    Raises OSError if it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **variables})
    try:
        yield process
    finally:
        await _end(process)


async def exit_code(process: Process) -> int:
    """Wait for the end and return the exit code as in a shell."""
    code = await process.wait()
    return code if code >= 0 else 128 - code


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        if process.returncode is None:
            process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
