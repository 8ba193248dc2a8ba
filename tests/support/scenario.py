"""The service in real processes, with a durable store, and a model and a tool that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from anthropic_server import AnthropicServer
from redis_server import RedisServer, redis_server
from replicas import Replica, Replicas
from router import RoutedConnection, Router
from service_process import remote_sessions
from slack_environment import Hold, SlackEnvironment
from tool_gate import GATED_TOOL, ToolGate

from local_slack import LocalSlack, PersonClient, RetrySchedule, WorkspaceMessage
from local_slack.methods.app import EVERY_SCOPE

StoreKind = Literal["sqlite", "redis"]
# Every write is on the disk before it is answered.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
HOURGLASS, ENVELOPE, EYES = "hourglass_flowing_sand", "incoming_envelope", "eyes"
_WITHIN_S = 60.0
_CONFIG = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    tools: [{{module: gated-tool, source: {tool}, config: {gates}}}{more}]
    orchestrator: {{module: loop-interactive, config: {{stop_grace_s: 0.2}}}}
workspace: {{root: {folder}/files{template}}}
lease_s: 2
shutdown_grace_s: 4
"""


@dataclass
class Scenario:
    """A thread of #general and the processes that serve it. `root` is its first message.

    `tests` holds calls of the tool `run_tests`, `set_up` the set-up of new sessions.
    """

    stage: SlackEnvironment
    board: Router
    model: AnthropicServer
    tests: ToolGate
    set_up: ToolGate
    replicas: Replicas
    redis: RedisServer | None
    root: str = ""

    @property
    def slack(self) -> LocalSlack:
        return self.stage.slack

    @property
    def ana(self) -> PersonClient:
        return self.slack.as_person("ana")

    async def start(self, replica: Replica) -> RoutedConnection:
        """Start a process, and return its connection to Slack. Its agents' process is started before."""
        if (sessions := self.replicas.sessions) is not None and not sessions.is_up:
            await sessions.start()
        count = len(self.board.lines)
        await replica.start()
        return await self.board.connected(count + 1)

    async def kill(self) -> None:
        """Kill the active process; the next one is ready when this returns."""
        self.board.choose(None)
        await self.replicas.each[0].kill()
        if len(self.replicas.each) == 1:
            await self.start(self.replicas.each[0])

    async def say(self, words: str) -> str:
        """Write to the thread, or begin it."""
        ts = await self.ana.say("general", words, thread=self.root or None)
        self.root = self.root or ts
        return ts

    async def sees(self, text: str) -> WorkspaceMessage:
        """Wait until the thread has such a message of the bot."""
        return await self.slack.until(lambda _: self.stage.found(self.root, text), _WITHIN_S)

    async def sees_mark(self, ts: str, name: str) -> None:
        await self.slack.until(lambda ws: ws.message("general", ts).reacted(name), _WITHIN_S)

    async def final_texts(self) -> list[str]:
        """Return the bot's texts once no run is shown and no event is outstanding."""

        def settled(_: object) -> bool:
            texts = self.stage.said(self.root)
            channel = self.slack.channel("general").id
            is_marked = any(m.reacted(HOURGLASS) for m in self.slack.workspace.thread(channel, self.root))
            is_shown = any(text.startswith(("⚙️", "⏸️ The service")) for text in texts)
            return bool(texts) and not is_marked and not is_shown and not self.board.outstanding

        await self.slack.until(settled, _WITHIN_S)
        return self.stage.said(self.root)

    async def says_once(self, text: str) -> None:
        """Wait until one post of the bot has a text; late copies of a dead process are removed after a while."""
        await self.slack.until(lambda _: sum(text in said for said in self.stage.said(self.root)) == 1, 3 * _WITHIN_S)

    def hold(self, method: str) -> Hold:
        return self.stage.hold(method)


@asynccontextmanager
async def scenario(
    folder: Path,
    store: StoreKind,
    *,
    replicas: int = 1,
    side_effect_free: bool = False,
    remote: bool | None = None,
    tools: tuple[str, ...] = (),
    template: Path | None = None,
    lacks_scope: str = "",
) -> AsyncIterator[Scenario]:
    """Start no process yet. Slack soon repeats events that a killed process did not acknowledge.

    `remote`: the agents run in a process of their own; by default, as `remote_sessions` says. `tools` are more modules,
    `template` the files of a new conversation. `lacks_scope`: a scope that the app does not have.
    """
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(redis_server(*DURABLE)) if store == "redis" else None
        model = await stack.enter_async_context(AnthropicServer())
        tests = await stack.enter_async_context(ToolGate())
        set_up = await stack.enter_async_context(ToolGate(is_open=True))
        slack = await stack.enter_async_context(
            LocalSlack(retries=RetrySchedule(1.0, (0.1,) * 100), scopes=EVERY_SCOPE - {lacks_scope})
        )
        stage, board = SlackEnvironment.of(slack, folder), Router(slack)
        env = {
            **stage.env,
            **model.env,
            "AMPLIFIER_SLACK_STORE": redis.url if redis else f"sqlite:{folder}/service.db",
        }
        gates = {"port": tests.port, "mount_port": set_up.port, "side_effect_free": side_effect_free}
        written = ", ".join(f"{name}: {str(value).lower()}" for name, value in gates.items())
        config = folder / "agents.yaml"
        more = "".join(f", {each}" for each in tools)
        config.write_text(
            _CONFIG.format(
                tool=GATED_TOOL,
                gates=f"{{{written}}}",
                folder=folder,
                more=more,
                template=f", template: {template}" if template else "",
            )
        )
        is_remote = remote_sessions() if remote is None else remote
        there = await stack.enter_async_context(Replicas.of(replicas, env, config, remote=is_remote))
        yield Scenario(stage, board, model, tests, set_up, there, redis)


@asynccontextmanager
async def served(folder: Path, store: StoreKind = "sqlite", **options: Any) -> AsyncIterator[Scenario]:
    """Run one process with SQLite, or one of two with Redis; `options` as in `scenario`."""
    async with scenario(folder, store, replicas=1 if store == "sqlite" else 2, **options) as there:
        first, *others = [await there.start(replica) for replica in there.replicas.each]
        if others:
            there.board.choose(first)
        yield there


async def reached_again(gate: ToolGate, calls: int) -> None:
    """Wait for the number of calls at a gate."""
    async with asyncio.timeout(_WITHIN_S):
        while gate.calls < calls:
            gate.reached.clear()
            await gate.reached.wait()
