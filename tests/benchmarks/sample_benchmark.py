"""A benchmark of nothing: one side prints, one cannot do everything, one is not installed, one fails if told to."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from functools import partial

from benchmarks.harness import Benchmark, Row, Side


async def prints():
    print("not an answer")  # noqa: T201 - as somebody's library might


async def fails():
    raise LookupError("this side is broken")


async def half_a_megabyte():
    return 512 * 1024


async def a_second():
    return 1.0


@asynccontextmanager
async def operations(second):
    yield {"first": partial(asyncio.sleep, 0), "told": half_a_megabyte, "waited": a_second, **second}


BROKEN = [Side("broken", partial(operations, {"second": fails}))] if "SAMPLE_BROKEN" in os.environ else []

BENCHMARK = Benchmark(
    title="A sample",
    rows=(
        Row("first", "what both can do", target=1e9),
        Row("second", "what one can do", target=0),
        Row("told", "what it holds", unit="KiB", meter="itself", once=True),
        Row("waited", "what it says", unit="ms", meter="itself", per=4),
        Row("quotient", "by itself", unit="times", target=1, of=("waited", "waited")),
    ),
    sides=(
        Side("ours", partial(operations, {"second": prints})),
        Side("half", partial(operations, {})),
        Side("absent", partial(operations, {}), packages=("no-such-distribution",), install="pip install it"),
        *BROKEN,
    ),
    pictured=("told", "waited"),
    notes=("What one should know.",),
)
