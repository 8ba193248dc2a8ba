from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from service_process import BIN

from local_slack import LocalSlack, Message, Waits

_OURS = ("SLACK_", "ANTHROPIC_")


@dataclass
class Serving:
    """The real command in a process of its own."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    _heard: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._heard:
                self.lines.append(line.decode())
                self._heard.notify_all()

    async def says(self, text: str) -> None:
        """Wait until its log has this text."""
        async with asyncio.timeout(40), self._heard:
            await self._heard.wait_for(lambda: text in self.output)

    async def ended(self, number: signal.Signals | None = None, within_s: float = 10) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if number is not None:
            self.process.send_signal(number)
        async with asyncio.timeout(within_s):
            return await self.process.wait()


@asynccontextmanager
async def serving(env: Mapping[str, str], *arguments: str) -> AsyncIterator[Serving]:
    """Run `amplifier-slack run`; it is killed at the end if it has not ended by then."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    process = await asyncio.create_subprocess_exec(
        str(BIN / "amplifier-slack"),
        "run",
        *arguments,
        env={**inherited, "PYTHONUNBUFFERED": "1", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    service = Serving(process)
    listening = asyncio.create_task(service.listen())
    try:
        yield service
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


class Hold(asyncio.Event):
    """An event for `Waits` that also says when a call has come to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.reached.set()
        return await super().wait()


@dataclass(frozen=True)
class Stage:
    """A workspace, and the environment that points the service to it."""

    slack: LocalSlack
    env: Mapping[str, str]

    def serving(self, *arguments: str, **more: str) -> AbstractAsyncContextManager[Serving]:
        return serving({**self.env, **more}, *arguments)

    def hold(self, method: str) -> Hold:
        """Hold the next call of this method until the event is set."""
        hold = Hold()
        self.slack.faults.next(method, Waits(hold))
        return hold

    def said(self, root: str) -> list[str]:
        """What the bot says in a thread of #general, as it stands."""
        return [m.text for m in self._thread(root) if m.by_bot]

    def found(self, root: str, text: str) -> Message | None:
        return next((m for m in self._thread(root) if m.ts != root and text in m.text), None)

    def _thread(self, root: str) -> tuple[Message, ...]:
        return self.slack.workspace.thread(self.slack.channel("general").id, root)


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack() as slack:
        yield slack


@pytest.fixture
def stage(slack: LocalSlack, tmp_path: Path) -> Stage:
    env = {
        "SLACK_APP_TOKEN": slack.app_token,
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_API_URL": slack.api_url,
        "HOME": str(tmp_path),
    }
    return Stage(slack, env)
