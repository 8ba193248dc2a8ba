"""The service as people start it: the real command, beside the local Slack, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

BIN = Path(sys.executable).parent
_URL = re.compile(r"http://127\.0\.0\.1:\d+/")
# What the tests' own environment holds must not decide what the service does.
_OURS = ("SLACK_", "ANTHROPIC_")


@dataclass(frozen=True)
class Ended:
    code: int
    output: str


async def run_command(*arguments: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run `amplifier-slack` with these arguments to its end."""
    process = await _start([str(BIN / "amplifier-slack"), *arguments], env or {})
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, output.decode())


@asynccontextmanager
async def playing(config: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """The local Slack with the service in it, once it is ready; gives the page's URL."""
    bot = [str(BIN / "amplifier-slack"), "run", "--config", str(config)]
    process = await _start(
        [sys.executable, "-m", "local_slack", "--port", "0", "--bot", "alpha", "--", *bot], env or {}
    )
    try:
        async with asyncio.timeout(30):
            url = await _ready_url(process)
        yield url
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def _start(command: list[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return await asyncio.create_subprocess_exec(
        *command,
        env={**inherited, "PYTHONUNBUFFERED": "1", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _ready_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    url, seen = "", ""
    async for line in process.stdout:
        seen += line.decode()
        if not url and (match := _URL.search(line.decode())):
            url = match[0]
        if "service.ready" in line.decode():
            return url
    raise AssertionError(f"the service did not get ready:\n{seen}")
