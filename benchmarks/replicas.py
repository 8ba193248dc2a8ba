"""Throughput of two replicas, compared with one."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.messages_api import HANGING
from benchmarks.redis_process import redis_server
from benchmarks.served import house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations
    from benchmarks.served import House

CONVERSATIONS = 100
STEERS = 20


class Crowd:
    """Users that ask replicas over Redis, in separate processes; the second row is measured with the first."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._busiest_s = 0.0

    async def finish(self) -> float:
        """Return the seconds until all conversations are answered."""
        with ExitStack() as closing:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
            async with house(folder, closing.enter_context(redis_server(folder)), self._replicas) as (there, services):
                for service in services:
                    await service.start()
                there.model_answers.set()
                await _ask(there)  # warm-up
                before_s = [service.cpu_s() for service in services]
                began = time.perf_counter()
                await _ask(there)
                elapsed_s = time.perf_counter() - began
                used_s = [service.cpu_s() - before for service, before in zip(services, before_s, strict=True)]
        self._busiest_s = max(used_s)
        return elapsed_s

    async def busiest(self) -> float:
        return self._busiest_s

    async def steer(self) -> float:
        """Return the longest time from an urgent message to its request, in seconds; the replicas get them in turn."""
        with ExitStack() as closing:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
            url = closing.enter_context(redis_server(folder))
            async with house(folder, url, self._replicas, HANGING) as (there, services):
                for service in services:
                    await service.start()
                there.model_answers.set()
                root = there.write(1)
                await there.until_asked(1)
                took_s = []
                for number in range(STEERS):
                    began = time.perf_counter()
                    there.steer(root)
                    await there.until_asked(number + 2)
                    took_s.append(time.perf_counter() - began)
        return max(took_s)


async def _ask(there: House) -> None:
    done = len(there.answered)
    there.write(CONVERSATIONS)
    await there.until_answered(done + CONVERSATIONS)


@asynccontextmanager
async def operations(replicas: int) -> AsyncIterator[Operations]:
    crowd = Crowd(replicas)
    yield {"finish": crowd.finish, "busiest": crowd.busiest, "steer": crowd.steer}


BENCHMARK = Benchmark(
    title="Replicas",
    rows=(
        Row("finish", f"each of {CONVERSATIONS} conversations", "ms", meter="itself", per=CONVERSATIONS, once=True),
        Row("busiest", "the same, CPU time of the busiest replica", "ms", meter="itself", per=CONVERSATIONS, once=True),
        Row("steer", f"slowest of {STEERS} times `!` → in a request", "ms", target=1000, meter="itself", once=True),
    ),
    sides=(Side("one replica", partial(operations, 1)), Side("two replicas", partial(operations, 2))),
    notes=(
        (
            f"{CONVERSATIONS} users ask at once. The first row is the time until the last answer is posted and its "
            "status message removed, divided by the number of conversations. The store is Redis, and the model "
            "answers at once. The local Slack, the model and Redis share the machine's cores with the replicas, so on "
            "two cores the CPU time shows the effect of a second replica better. Slack sends events to the replicas "
            "in turn: every second `!` arrives at the replica that does not own the run."
        ),
    ),
)
