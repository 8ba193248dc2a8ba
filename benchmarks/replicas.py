"""How many conversations two replicas finish in the time that one needs for them."""

from __future__ import annotations

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
    from benchmarks.served import House

CONVERSATIONS = 100


async def finished(replicas: int) -> float:
    """Seconds until as many conversations are answered, by replicas over Redis in processes of their own."""
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        async with house(folder, closing.enter_context(redis_server(folder)), replicas) as (there, services):
            for service in services:
                await service.start()
            there.model_answers.set()
            await _ask(there)  # imports and caches
            began = time.perf_counter()
            await _ask(there)
            return time.perf_counter() - began


async def _ask(there: House) -> None:
    done = len(there.answered)
    there.write(CONVERSATIONS)
    await there.until_answered(done + CONVERSATIONS)


@asynccontextmanager
async def operations(replicas: int) -> AsyncIterator[Operations]:
    yield {"finish": partial(finished, replicas)}


BENCHMARK = Benchmark(
    title="Replicas",
    rows=(
        Row("finish", f"a conversation of {CONVERSATIONS}", unit="ms", meter="itself", per=CONVERSATIONS, once=True),
    ),
    sides=(Side("one replica", partial(operations, 1)), Side("two replicas", partial(operations, 2))),
    notes=(
        (
            f"{CONVERSATIONS} people ask at once; the time until the last answer is there and its status is gone, for "
            "each. Over Redis, with a model that answers at once. The local Slack and the model share the machine's "
            "cores with the replicas."
        ),
    ),
)
