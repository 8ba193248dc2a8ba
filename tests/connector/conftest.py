from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chat import ALPHA, BETA, Chat
from fake_sessions import FakeSessionManager
from slack_environment import Hold
from slack_sdk.web.async_client import AsyncWebClient

from connector import HttpTransport, Instance, SlackCredentials, SocketTransport
from connector.app import ConnectorParts, connected
from connector.slack_api.client import SlackClient
from connector.slack_api.rate_limiter import RateLimiter
from connector.workspaces import WorkspaceSettings
from local_slack import LocalSlack
from service.runs import StoredRuns
from service.store import open_run_store
from service.store.base import RunStore

Process = Callable[..., AbstractAsyncContextManager[Chat]]


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack(apps=("pager",)) as slack:
        yield slack


@pytest.fixture
def sessions() -> Iterator[FakeSessionManager]:
    """The agents' sessions; like their logs, they outlive a process."""
    sessions = FakeSessionManager()
    yield sessions
    assert not sessions.overlapped, "one run at a time in a conversation"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    async with aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store:
        yield store


@pytest.fixture
async def runs(store: RunStore) -> AsyncIterator[StoredRuns]:
    async with StoredRuns(store, "this process", 10) as runs:
        yield runs


@pytest.fixture
def holds(slack: LocalSlack) -> Iterator[list[Hold]]:
    """The calls of Slack that a test holds; they are released when it ends."""
    holds: list[Hold] = []
    yield holds
    slack.faults.clear()
    for hold in holds:
        hold.set()


@pytest.fixture
def process(slack: LocalSlack, sessions: FakeSessionManager, store: RunStore, holds: list[Hold]) -> Process:
    """Run a process of the service, and end it as SIGTERM does.

    `on` is another workspace; `given` are fields of `WorkspaceSettings` and `ConnectorParts`.
    """

    @asynccontextmanager
    async def process(
        *instances: Instance,
        on: LocalSlack = slack,
        transport: HttpTransport | None = None,
        **given: Any,
    ) -> AsyncIterator[Chat]:
        credentials = SlackCredentials(on.bot_token, on.api_url, transport or SocketTransport(on.app_token))
        chosen = {name: given.pop(name) for name in ("channels", "policy", "options") if name in given}
        settings = WorkspaceSettings(instances or (ALPHA, BETA), **chosen)
        async with AsyncExitStack() as stack:
            runs = await stack.enter_async_context(StoredRuns(store, f"process {id(stack)}", 10))
            more = {"shutdown_grace_s": 0.1, **given}
            parts = ConnectorParts(sessions=sessions, runs=runs, settings_of=lambda _: settings, **more)
            await stack.enter_async_context(connected(credentials, parts))
            if transport is not None:
                await on.deliver_to(f"http://127.0.0.1:{transport.port}/slack/events")
            await on.until(lambda ws: ws.bot_online)
            yield Chat(on, sessions, holds)

    return process


@pytest.fixture
async def chat(process: Process) -> AsyncIterator[Chat]:
    async with process() as chat:
        yield chat
        chat.slack.faults.clear()
        for hold in chat.holds:
            hold.set()


@pytest.fixture
async def client(slack: LocalSlack) -> AsyncIterator[SlackClient]:
    """A client of the workspace, whose rate limits do not delay a test."""
    async with aiohttp.ClientSession() as http, RateLimiter("T", scale=100) as rate_limiter:
        web_client = AsyncWebClient(slack.bot_token, base_url=slack.api_url, session=http, retry_handlers=[])
        yield SlackClient(web_client, rate_limiter)
