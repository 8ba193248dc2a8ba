"""Latency from a person's click to the beginning of the approved call."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.intake import LEASE_S, BusySessions, alpha_connected
from benchmarks.redis_process import redis_server
from connector import SlackCredentials, SocketTransport
from connector.protocols import PersonRequest
from local_slack import LocalSlack
from service.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations
    from connector.protocols import People, ProgressCallback

CLICKS = 100
ALLOW = "request_choose_0"


class AskingSessions(BusySessions):
    """Runs that ask for one approval each, and end once its call has begun."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[float] = asyncio.Queue()

    async def execute(
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        people: People | None = None,
        **more: Any,
    ) -> str:
        del instance_name, conversation_id, prompt, on_progress, more
        if people is None:
            raise ValueError("there is no one to ask")
        answer = await people.ask(PersonRequest("call", "digest", "Allow write_file?"))
        if not answer.allows or await people.start("call", "digest") is not None:
            raise ValueError("the call may not begin")
        self.begun.put_nowait(time.perf_counter())
        return "Done."


class Clicks:
    """A person who allows one call after the other; the first row measures, the second uses its data."""

    def __init__(self, slack: LocalSlack, sessions: AskingSessions) -> None:
        self._slack = slack
        self._sessions = sessions
        self._p99_s = 0.0

    async def median(self) -> float:
        """Return the median in seconds."""
        took_s = [await self._click(number) for number in range(CLICKS)]
        percentiles = quantiles(took_s, n=100)
        self._p99_s = percentiles[98]
        return percentiles[49]

    async def p99(self) -> float:
        return self._p99_s

    async def _click(self, number: int) -> float:
        ana = self._slack.as_person("ana")
        root = await ana.say("general", f"@alpha write {number}")
        asked = await self._slack.until(
            lambda workspace: next(
                (each for each in workspace.thread("general", root) if each.text.startswith("✋ Allow")), None
            )
        )
        if asked is None:
            raise ValueError("there is no request")
        began_s = time.perf_counter()
        await ana.click("general", asked.ts, ALLOW)
        return await self._sessions.begun.get() - began_s


@asynccontextmanager
async def operations(store: str) -> AsyncIterator[Operations]:
    """Provide the clicks over a store: `sqlite` or `redis`. Slack runs in the same process."""
    async with AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        url = closing.enter_context(redis_server(folder)) if store == "redis" else f"sqlite:{folder}/runs.db"
        inboxes = await closing.enter_async_context(aclosing(await open_run_store(url)))
        runs = await closing.enter_async_context(StoredRuns(inboxes, "this process", LEASE_S))
        slack = await closing.enter_async_context(LocalSlack(limits=None))
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        sessions = AskingSessions()
        service = alpha_connected(access, sessions, runs, shutdown_grace_s=0.1, rate_scale=1000.0)
        await closing.enter_async_context(service)
        await slack.until(lambda workspace: workspace.bot_online)
        clicks = Clicks(slack, sessions)
        yield {"median": clicks.median, "p99": clicks.p99}


BENCHMARK = Benchmark(
    title="From a click to the approved call",
    rows=(
        Row("median", "median", unit="ms", meter="itself", once=True),
        Row("p99", "99th percentile", unit="ms", meter="itself", once=True, target=100.0),
    ),
    sides=(Side("SQLite", partial(operations, "sqlite")), Side("Redis, on this machine", partial(operations, "redis"))),
    notes=(f"{CLICKS} approvals in turn. The click, its answer and the beginning are stored one after the other.",),
)
