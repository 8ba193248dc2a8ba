"""A sample: one side prints, one lacks an operation, one is not installed, and one may fail."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial

from benchmarks.harness import Benchmark, Row, Side


async def prints():
    print("not an answer")  # noqa: T201 - as a library may


async def fails():
    raise LookupError("this side is broken")


async def half_a_megabyte():
    return 512 * 1024


async def a_second():
    return 1.0


@asynccontextmanager
async def operations(second):
    yield {"first": partial(asyncio.sleep, 0), "memory": half_a_megabyte, "time": a_second, **second}


BROKEN = [Side("broken", partial(operations, {"second": fails}))] if "SAMPLE_BROKEN" in os.environ else []

BENCHMARK = Benchmark(
    title="A sample",
    rows=(
        Row("first", "done by both", target=1e9),
        Row("second", "done by one", target=0),
        Row("memory", "memory of it", unit="KiB", meter="itself", once=True),
        Row("time", "time of it", unit="ms", meter="itself", per=4),
        Row("quotient", "quotient", unit="times", target=1, of=("time", "time")),
    ),
    sides=(
        Side("ours", partial(operations, {"second": prints})),
        Side("half", partial(operations, {})),
        Side("absent", partial(operations, {}), packages=("no-such-distribution",), install="pip install it"),
        *BROKEN,
    ),
    pictured=("memory", "time"),
    notes=("A note.",),
)
