"""Latency of the acknowledgement of an event, which is sent after the event is stored."""

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
from benchmarks.redis_process import redis_server
from benchmarks.slack_process import slack_elsewhere
from connector import Instance, Persona, RunLimits, SlackCredentials, SlackOptions, SocketTransport
from connector.app import ConnectorParts, connected
from connector.protocols import NO_TALK, MessageFile
from connector.workspaces import WorkspaceSettings
from service.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping
    from contextlib import AbstractAsyncContextManager

    from benchmarks.harness import Operations
    from benchmarks.slack_process import SlackProcess
    from connector.app import Connection
    from connector.protocols import MessageAuthor, People, ProgressCallback, SessionManager, ThreadTalk

THREADS = 100
REPLIES = 300
# Each reply gets a reaction of the bot, and each reaction causes an event: twice as many events.
PER_S = 100.0
LEASE_S = 10.0


class BusySessions:
    """Runs that never end and accept every message."""

    async def execute(  # noqa: PLR0913 - the protocol's
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        message_id: str | None = None,
        author: MessageAuthor | None = None,
        written_s: float | None = None,
        files: tuple[MessageFile, ...] = (),
        notes: Mapping[str, str] | None = None,
        talk: ThreadTalk = NO_TALK,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        del instance_name, conversation_id, prompt, message_id, author, written_s, files, notes, talk, people, fence
        if on_progress is not None:
            await on_progress("executing", {})
            await on_progress("thinking", {})
        await asyncio.Event().wait()
        raise AssertionError

    async def resume(
        self,
        instance_name: str,
        conversation_id: str,
        on_progress: ProgressCallback | None = None,
        *,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        return await self.execute(instance_name, conversation_id, "", on_progress, people=people, fence=fence)

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        del instance_name, conversation_id, ids, fence
        return frozenset()

    def inject(self, instance_name: str, conversation_id: str, prompt: str, **more: object) -> bool:
        del instance_name, conversation_id, prompt, more
        return True

    async def edit(
        self, instance_name: str, conversation_id: str, message_id: str, text: str, files: tuple[MessageFile, ...] = ()
    ) -> bool:
        del instance_name, conversation_id, message_id, text, files
        return True

    async def keep_file(  # noqa: PLR0913, PLR0917 - the parts of a file
        self, instance_name: str, conversation_id: str, file_id: str, name: str, mimetype: str, content: Path
    ) -> MessageFile:
        del instance_name, conversation_id, file_id, mimetype, content
        return MessageFile(name)

    async def drop_files(self, instance_name: str, conversation_id: str, file_ids: Collection[str]) -> None:
        del instance_name, conversation_id, file_ids

    async def withdraw(self, instance_name: str, conversation_id: str, message_id: str) -> bool:
        del instance_name, conversation_id, message_id
        return True

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False, agent: str = "") -> bool:
        del instance_name, conversation_id, immediate, agent
        return False

    def suspend(self, instance_name: str, conversation_id: str) -> bool:
        del instance_name, conversation_id
        return False


def alpha_connected(
    access: SlackCredentials, sessions: SessionManager, runs: StoredRuns, *, stream: bool = False, **parts: Any
) -> AbstractAsyncContextManager[Connection]:
    """Answer with one instance, `alpha`, in any number of runs; `parts` are further fields of `ConnectorParts`."""
    settings = WorkspaceSettings([Instance("alpha", Persona("Alpha", ":owl:"))], options=SlackOptions(stream=stream))
    limits = RunLimits(runs=100_000, runs_per_channel=100_000, runs_per_person=100_000)
    return connected(
        access, ConnectorParts(sessions=sessions, runs=runs, settings_of=lambda _: settings, limits=limits, **parts)
    )


class Load:
    """Replies to threads with an active run each; the first row measures, the others use its data."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._costs: dict[str, float] = {}

    async def median(self) -> float:
        """Return the median in seconds; the figures of the other rows are measured too.

        This is one operation, because between operations the pings of the sockets are not answered.
        """
        async with connector_over(self._store) as slack:
            await slack.threads(THREADS)
            await slack.replies(THREADS, PER_S)  # warm-up: starts the runs and fills the caches
            acks_s = await slack.replies(REPLIES, PER_S)
            began = time.perf_counter()
            await slack.replies(REPLIES, 1e9)
            self._costs["at_once"] = time.perf_counter() - began
        percentiles = quantiles(acks_s, n=100)
        self._costs |= {"p99": percentiles[98], "longest": max(acks_s)}
        return percentiles[49]

    async def measured(self, name: str) -> float:
        return self._costs[name]


@asynccontextmanager
async def connector_over(store: str) -> AsyncIterator[SlackProcess]:
    """Run the real connector and inboxes over a store, `sqlite` or `redis`."""
    async with AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        url = closing.enter_context(redis_server(folder)) if store == "redis" else f"sqlite:{folder}/runs.db"
        inboxes = await closing.enter_async_context(aclosing(await open_run_store(url)))
        runs = await closing.enter_async_context(StoredRuns(inboxes, "this process", LEASE_S))
        slack = await closing.enter_async_context(slack_elsewhere())
        begun = await slack.begun()
        access = SlackCredentials(begun["bot_token"], begun["api_url"], SocketTransport(begun["app_token"]))
        service = alpha_connected(access, BusySessions(), runs, shutdown_grace_s=0, rate_scale=1000)
        await closing.enter_async_context(service)
        yield slack


@asynccontextmanager
async def operations(store: str) -> AsyncIterator[Operations]:
    load = Load(store)
    yield {"median": load.median, **{name: partial(load.measured, name) for name in ("p99", "longest", "at_once")}}


BENCHMARK = Benchmark(
    title="Receiving, storing and acknowledging a Slack event",
    rows=(
        Row("median", f"at {2 * PER_S:g} events a second, median", unit="ms", meter="itself", once=True),
        Row("p99", "99th percentile", unit="ms", target=50, meter="itself", once=True),
        Row("longest", "maximum", unit="ms", meter="itself", once=True),
        Row("at_once", f"{2 * REPLIES} at once, each", unit="ms", meter="itself", per=2 * REPLIES, once=True),
    ),
    sides=(Side("SQLite", partial(operations, "sqlite")), Side("Redis, on this machine", partial(operations, "redis"))),
    notes=(
        (
            "The time from the moment when the local Slack, in its own process, sends an event over the socket until "
            f"it receives the acknowledgement. {REPLIES} replies arrive in {THREADS} threads with an active run each; "
            "the connector is the real one. Each reply gets its 📨, and each reaction causes another event. The "
            "sessions are stubs that accept every message."
        ),
    ),
)
