"""Cost of the operations of the run store: inboxes and leases, over each store."""

from __future__ import annotations

import tempfile
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.redis_process import redis_server
from connector.protocols import InboxEntry, StateChanges
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from benchmarks.harness import Operations
    from service.store.base import RunStore

LEASE_S = 3600.0
OWNER = "this process"
RUN = {"id": "0" * 32, "first": {"prompt": "What is new?", "instance": "alpha"}, "stopped_by": None, "status_ts": None}
POST = {"number": 1, "texts": ["Nothing of note."], "by_agent": True}


class Inbox:
    """One conversation that this process owns, and others without an owner."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._numbers = count(1)
        self._token = 0

    async def open(self) -> None:
        claimed = await self._store.claim("T1:owned", OWNER, LEASE_S)
        assert claimed is not None  # noqa: S101 - there is no other process
        self._token = claimed.token

    async def admit(self) -> float:
        """Return the seconds of an `admit`; the entry is closed afterwards."""
        number = next(self._numbers)
        cost = await timed(
            self._store.admit("T1:owned", InboxEntry(f"message {number}", "message", {"prompt": "And?"}), "alpha")
        )
        await self._store.write("T1:owned", self._token, StateChanges(closed={number: ""}))
        return cost

    async def admit_and_receive(self) -> float:
        """Return the seconds from an `admit` until the owner is notified and has fetched the entry."""
        number = next(self._numbers)
        began = time.perf_counter()
        await self._store.admit("T1:owned", InboxEntry(f"message {number}", "message", {"prompt": "And?"}), "alpha")
        while "T1:owned" not in await self._store.wait_for_notifications(OWNER):
            pass
        await self._store.fetch("T1:owned", self._token, number - 1)
        cost = time.perf_counter() - began
        await self._store.write("T1:owned", self._token, StateChanges(closed={number: ""}))
        return cost

    async def renew(self) -> None:
        await self._store.renew("T1:owned", self._token, LEASE_S)

    async def write(self) -> None:
        await self._store.write("T1:owned", self._token, StateChanges(run=RUN, posts={"1": POST}))

    async def claim(self) -> float:
        place = f"T1:conversation {next(self._numbers)}"
        began = time.perf_counter()
        claimed = await self._store.claim(place, OWNER, LEASE_S)
        cost = time.perf_counter() - began
        await self._store.release(place, claimed.token if claimed else 0, 0)
        return cost

    async def release(self) -> float:
        place = f"T1:conversation {next(self._numbers)}"
        claimed = await self._store.claim(place, OWNER, LEASE_S)
        return await timed(self._store.release(place, claimed.token if claimed else 0, 0))

    async def due(self) -> None:
        await self._store.due("T1", 50)


async def timed(step: Awaitable[object]) -> float:
    began = time.perf_counter()
    await step
    return time.perf_counter() - began


@asynccontextmanager
async def operations(store: str) -> AsyncIterator[Operations]:
    """Provide the operations of a store: `sqlite` or `redis`."""
    async with AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        url = closing.enter_context(redis_server(folder)) if store == "redis" else f"sqlite:{folder}/runs.db"
        inbox = Inbox(await closing.enter_async_context(aclosing(await open_run_store(url))))
        await inbox.open()
        yield {
            "admit": inbox.admit,
            "receive": inbox.admit_and_receive,
            "claim": inbox.claim,
            "renew": inbox.renew,
            "write": inbox.write,
            "release": inbox.release,
            "due": inbox.due,
        }


BENCHMARK = Benchmark(
    title="Inboxes and leases",
    rows=(
        Row("admit", "admit a message", meter="itself"),
        Row("receive", "the same, until the owner receives it", meter="itself"),
        Row("claim", "claim a conversation", meter="itself"),
        Row("renew", "renew its lease"),
        Row("write", "store a run and a post"),
        Row("release", "release it", meter="itself"),
        Row("due", "look up due conversations"),
    ),
    sides=(Side("SQLite", partial(operations, "sqlite")), Side("Redis, on this machine", partial(operations, "redis"))),
    notes=("Sequential operations. Redis does not persist to disk here; SQLite as in the log's table.",),
)
