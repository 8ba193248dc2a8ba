from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from fake_sessions import FakeSessionManager

from connector import Instance, Persona, RunLimits, SlackCredentials, SocketTransport, connected
from local_slack import LocalSlack, Message, PersonClient, Waits, Workspace
from service.runs.runs import StoredRuns
from service.store import open_run_store
from service.store.base import RunStore

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
BETA = Instance("beta", Persona("Beta", ":fox_face:"))


@dataclass
class Scene:
    """A workspace with the bot in it, whose runs the test holds."""

    slack: LocalSlack
    sessions: FakeSessionManager

    @property
    def ana(self) -> PersonClient:
        return self.slack.as_person("ana")

    @property
    def ben(self) -> PersonClient:
        return self.slack.as_person("ben")

    def message(self, channel: str, ts: str) -> Message:
        return next(m for m in self.slack.workspace.messages(self.slack.channel(channel).id) if m.ts == ts)

    async def reacted(self, channel: str, ts: str, name: str, *, gone: bool = False) -> None:
        await self.slack.until(lambda _: self.message(channel, ts).reacted(name) is not gone)

    async def status(self, channel: str, root: str) -> Message:
        """The status message in this thread, once it is there."""
        return await self.slack.until(lambda ws: find(ws, self.slack.channel(channel).id, root, "⚙️"))

    async def posted(self, channel: str, root: str, text: str, timeout_s: float = 10) -> Message:
        return await self.slack.until(lambda ws: find(ws, self.slack.channel(channel).id, root, text), timeout_s)

    def texts(self, channel: str, root: str) -> list[str]:
        """What the bot says in this thread as it stands, the status too."""
        return [m.text for m in self.slack.workspace.thread(self.slack.channel(channel).id, root) if m.by_bot]

    async def quiet(self, channel: str, root: str, posts: int = 1) -> list[Message]:
        """The thread's replies, once the bot has posted so many and the status and the hourglass are gone."""
        channel_id = self.slack.channel(channel).id

        def settled(ws: Workspace) -> bool:
            thread = ws.thread(channel_id, root)
            busy = any("⚙️" in m.text for m in thread) or thread[0].reacted("hourglass_flowing_sand")
            return not busy and sum(m.by_bot for m in thread) >= posts

        await self.slack.until(settled)
        return [m for m in self.slack.workspace.thread(channel_id, root) if m.ts != root]


def find(ws: Workspace, channel: str, root: str, text: str) -> Message | None:
    return next((m for m in ws.thread(channel, root) if m.ts != root and text in m.text), None)


def access(slack: LocalSlack) -> SlackCredentials:
    return SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack() as slack:
        yield slack


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    async with aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store:
        yield store


@pytest.fixture
async def runs(store: RunStore) -> AsyncIterator[StoredRuns]:
    async with StoredRuns(store, "this process", 10) as runs:
        yield runs


@pytest.fixture
def scene_of() -> type[Scene]:
    """For a scene with another workspace, or another way in."""
    return Scene


@pytest.fixture
async def scene(slack: LocalSlack, runs: StoredRuns) -> AsyncIterator[Scene]:
    sessions = FakeSessionManager()
    async with connected(access(slack), [ALPHA, BETA], sessions, runs, shutdown_grace_s=0.5):
        await slack.until(lambda ws: ws.bot_online)
        yield Scene(slack, sessions)
    assert not sessions.overlapped, "one run at a time in a conversation"


class Hold(asyncio.Event):
    """An event for `Waits` that also says when a call has come to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.reached.set()
        return await super().wait()


@pytest.fixture
async def hold(scene: Scene) -> AsyncIterator[Callable[[str], Hold]]:
    """Hold the next call of a method until the event is set, at the latest when the test ends."""
    held: list[Hold] = []

    def hold(method: str) -> Hold:
        held.append(Hold())
        scene.slack.faults.next(method, Waits(held[-1]))
        return held[-1]

    yield hold
    scene.slack.faults.clear()
    for event in held:
        event.set()


@pytest.fixture
def of_bot() -> Callable[[list[Message]], list[str]]:
    return lambda messages: [m.text for m in messages if m.by_bot]


@pytest.fixture
def sessions() -> FakeSessionManager:
    """What the agents remember outlives the process, as their logs do."""
    sessions = FakeSessionManager()
    sessions.obedient = True
    return sessions


@pytest.fixture
def process(slack: LocalSlack, sessions: FakeSessionManager, tmp_path):
    """A process of the service, which ends as SIGTERM ends it; `grace_s` is what it has for that."""

    @asynccontextmanager
    async def process(
        grace_s: float = 5, agents: Sequence[Instance] = (ALPHA,), limits: RunLimits | None = None
    ) -> AsyncIterator[None]:
        async with (
            aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store,
            StoredRuns(store, "a process", 10) as runs,
            connected(access(slack), agents, sessions, runs, shutdown_grace_s=grace_s, limits=limits),
        ):
            await slack.until(lambda ws: ws.bot_online)
            yield

    return process


@pytest.fixture
def ana(slack: LocalSlack) -> PersonClient:
    return slack.as_person("ana")
