"""Processes that share a run store, each with its own connection if the store is Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pytest

from connector.protocols import InboxEntry
from service.runs.runs import StoredRuns
from service.store import open_run_store
from service.store.base import RunStore

HERE = "T:C:1.0"


class Process:
    """A `StoredRuns`, and the conversations of workspace T that it was asked to work on."""

    def __init__(self, runs: StoredRuns) -> None:
        self.runs = runs
        self.woken: list[str] = []
        self._changed = asyncio.Event()
        runs.watch("T", self._wake)

    def _wake(self, conversation_id: str) -> None:
        self.woken.append(conversation_id)
        self._changed.set()

    async def wakes(self, conversation_id: str = HERE, within_s: float = 5) -> None:
        """Wait until it is asked to work on this conversation; earlier requests count."""
        async with asyncio.timeout(within_s):
            while conversation_id not in self.woken:
                self._changed.clear()
                await self._changed.wait()

    async def owns(self, conversation_id: str = HERE, within_s: float = 15):
        """Claim a conversation until it succeeds; return the lease."""
        async with asyncio.timeout(within_s):
            while (lease := await self.runs.claim(conversation_id)) is None:  # noqa: ASYNC110 - no event at expiry
                await asyncio.sleep(0.02)
        return lease

    async def admit(self, number: int, conversation_id: str = HERE) -> bool:
        entry = InboxEntry(f"T:C:{number}", "message", {"text": f"message {number}"})
        return await self.runs.admit(conversation_id, entry, "alpha")


@pytest.fixture
async def store(url: str) -> AsyncIterator[RunStore]:
    async with aclosing(await open_run_store(url)) as store:
        yield store


@pytest.fixture
def process(request: pytest.FixtureRequest):
    """Start processes over `store`, or over `redis_url` if it is given."""
    owners = iter(("one", "two", "three"))

    @asynccontextmanager
    async def start(lease_s: float = 10, redis_url: str = "", **options) -> AsyncIterator[Process]:
        if not redis_url:
            url, store = request.getfixturevalue("url"), request.getfixturevalue("store")
            redis_url = url if url.startswith("redis:") else ""
        async with AsyncExitStack() as stack:
            if redis_url:
                store = await stack.enter_async_context(aclosing(await open_run_store(redis_url)))
            yield Process(await stack.enter_async_context(StoredRuns(store, next(owners), lease_s, **options)))

    return start
