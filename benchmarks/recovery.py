"""Time from the restart of a killed service until it works and its answers are posted."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.redis_process import redis_server
from benchmarks.served import house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations

RUNS = 100


class Recovery:
    """Kill a service with RUNS runs that wait for the model, and restart it; times count from the restart."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._costs: dict[str, float] = {}

    async def idle(self) -> float:
        """Return the start-up time without runs to resume; the figures of the other rows are measured after it."""
        with ExitStack() as closing:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
            redis = self._store == "redis"
            url = closing.enter_context(redis_server(folder)) if redis else f"sqlite:{folder}/service.db"
            async with house(folder, url, 1) as (there, (service,)):
                began = time.perf_counter()
                await service.start()
                self._costs["idle"] = time.perf_counter() - began
                there.write(RUNS)
                await there.until_asked(RUNS)
                await there.slack.until(lambda _: not there.slack.socket_mode.delivery.outstanding)
                await service.kill()

                began = time.perf_counter()
                starting = asyncio.create_task(service.start())
                for name, reached in (
                    ("first", there.until_asked(RUNS + 1)),
                    ("resumed", there.until_asked(2 * RUNS)),
                ):
                    await reached
                    self._costs[name] = time.perf_counter() - began
                await starting
                there.model_answers.set()
                await there.until_answered(RUNS)
                self._costs["answered"] = time.perf_counter() - began
        return self._costs["idle"]

    async def measured(self, name: str) -> float:
        return self._costs[name]


@asynccontextmanager
async def operations(store: str) -> AsyncIterator[Operations]:
    recovery = Recovery(store)
    yield {
        "idle": recovery.idle,
        **{name: partial(recovery.measured, name) for name in ("first", "resumed", "answered")},
    }


BENCHMARK = Benchmark(
    title=f"Resuming {RUNS} runs after kill -9",
    rows=(
        Row("idle", "ready, with nothing to resume", unit="ms", meter="itself", once=True),
        Row("first", "first model call of a resumed run", unit="ms", meter="itself", once=True),
        Row("resumed", f"first model calls of all {RUNS} runs", unit="ms", target=2000, meter="itself", once=True),
        Row("answered", f"all {RUNS} answers in their threads, once", unit="ms", meter="itself", once=True),
    ),
    sides=(Side("SQLite", partial(operations, "sqlite")), Side("Redis, on this machine", partial(operations, "redis"))),
    notes=(
        (
            "The times begin with the start of the next process. The service is the real command, with a local Slack "
            "and a local model in another process. Over an SQLite file the next process knows that the previous one "
            "is dead. Over Redis the leases of the dead process, two seconds long, must expire first."
        ),
    ),
)
