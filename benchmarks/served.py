"""The real service in separate processes, with a local Slack and a local model in this one."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.messages_api import ALL_AT_ONCE, messages_api
from local_slack import LocalSlack
from local_slack.workspace.messages import Body, Deleted, Posted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from local_slack.workspace.messages import Change

CHANNEL = "general"
_WITHIN_S = 120.0
# Of its output, the last lines are kept.
_LINES = 50
_LINE_BYTES = 1024 * 1024
_READY = b"service.ready"
_STATUS = ":status"
_CONFIG = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    providers:
      - module: provider-anthropic
        config: {{api_key: no-key, base_url: "{model_url}", model: {model}, max_output_tokens: 2}}
    tools: []
store: "{store}"
workspace: {{root: "{folder}/files"}}
lease_s: 2
slack: {{rate_scale: 1000}}
limits: {{runs: 10000, runs_per_channel: 10000, runs_per_person: 10000}}
"""


class House:
    """A workspace and a model. `asked` counts the model requests, which wait until `model_answers` is set."""

    def __init__(self, slack: LocalSlack) -> None:
        self.slack = slack
        self.asked = 0
        self.answered: set[str] = set()
        self._doubled: set[str] = set()
        self.model_answers = asyncio.Event()
        self._statuses: set[str] = set()
        self._news = asyncio.Event()
        slack.workspace.listen(self._on_change)

    async def on_request(self, _asked: dict[str, Any]) -> None:
        self.asked += 1
        self._news.set()
        await self.model_answers.wait()

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(_WITHIN_S):
            while self.asked < count:
                self._news.clear()
                await self._news.wait()

    async def until_answered(self, count: int) -> None:
        """Wait until that many threads have an answer and no status message is left.

        Raises:
            RuntimeError: a thread has two answers.
        """
        await self.slack.until(lambda _: len(self.answered) >= count and not self._statuses, _WITHIN_S)
        if self._doubled:
            raise RuntimeError(f"{len(self._doubled)} threads have more than one answer.")

    def write(self, count: int) -> str:
        """Start that many threads with the agent; returns the last one."""
        return [self._post(f"<@{self.slack.bot_user_id}> what is new?", None) for _ in range(count)][-1]

    def steer(self, root: str) -> None:
        """Post an urgent message."""
        self._post("!and now?", root)

    def _post(self, words: str, root: str | None) -> str:
        return self.slack.workspace.post(CHANNEL, self.slack.person("ana"), Body(words), thread_ts=root).ts

    def _on_change(self, change: Change) -> None:
        match change:
            case Posted(message) if message.by_bot:
                if str((message.metadata or {}).get("event_payload", {}).get("key", "")).endswith(_STATUS):
                    self._statuses.add(message.ts)
                else:
                    root = message.thread_ts or message.ts
                    (self._doubled if root in self.answered else self.answered).add(root)
            case Deleted(previous):
                self._statuses.discard(previous.ts)


class Service:
    """One process of the service, which can be killed and restarted."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._command = command
        self._env = env
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._said: deque[bytes] = deque(maxlen=_LINES)

    async def start(self) -> None:
        """Start the process and wait until it is ready."""
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._env, stdout=DEVNULL, stderr=PIPE, limit=_LINE_BYTES
        )
        assert process.stderr is not None  # noqa: S101 - it was made with one
        self._said.clear()
        async for line in process.stderr:
            self._said.append(line)
            if _READY in line:
                self._reading = asyncio.create_task(self._read_on(process.stderr))
                return
        raise RuntimeError(f"The service does not start:\n{self._output}")

    @property
    def pid(self) -> int:
        """Return its process id.

        Raises:
            RuntimeError: it has ended by itself.
        """
        assert self._process is not None  # noqa: S101 - it was started
        if self._process.returncode is not None:
            raise RuntimeError(f"The service has ended:\n{self._output}")
        return self._process.pid

    def cpu_s(self) -> float:
        """Return its CPU time so far, in seconds."""
        return cpu_s(self.pid)

    async def terminate(self) -> None:
        """Ask it to end and wait until it has ended."""
        assert self._process is not None  # noqa: S101 - it was started
        self._process.terminate()
        await self._process.wait()

    async def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    @property
    def _output(self) -> str:
        return b"".join(self._said).decode()

    async def _read_on(self, stream: asyncio.StreamReader) -> None:
        """Read its output, because a full pipe would block it."""
        async for line in stream:
            self._said.append(line)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def house(
    folder: Path, store: str, processes: int, manner: str = ALL_AT_ONCE
) -> AsyncIterator[tuple[House, list[Service]]]:
    """Prepare a workspace and a model; at exit all processes are killed. `manner` selects how the model answers."""
    async with AsyncExitStack() as closing:
        there = House(await closing.enter_async_context(LocalSlack(limits=None)))
        url = await closing.enter_async_context(messages_api(there.on_request))
        config = folder / "agents.yaml"
        config.write_text(_CONFIG.format(model_url=url, model=manner, store=store, folder=folder))
        tokens = {"SLACK_APP_TOKEN": there.slack.app_token, "SLACK_BOT_TOKEN": there.slack.bot_token}
        env = {**os.environ, **tokens, "SLACK_API_URL": there.slack.api_url, "HOME": str(folder)}
        env.pop("AMPLIFIER_SLACK_STORE", None)
        command = [sys.executable, "-m", "service", "run", "--config", str(config)]
        services = [Service(command, env) for _ in range(processes)]
        for service in services:
            closing.push_async_callback(service.kill)
        yield there, services
