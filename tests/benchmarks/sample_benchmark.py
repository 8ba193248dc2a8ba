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


@asynccontextmanager
async def operations(second):
    yield {"first": partial(asyncio.sleep, 0), **second}


BROKEN = [Side("broken", partial(operations, {"second": fails}))] if "SAMPLE_BROKEN" in os.environ else []

BENCHMARK = Benchmark(
    title="A sample",
    rows=(Row("first", "what both can do", target_us=1e9), Row("second", "what one can do", target_us=0)),
    sides=(
        Side("ours", partial(operations, {"second": prints})),
        Side("half", partial(operations, {})),
        Side("absent", partial(operations, {}), package="no-such-distribution", install="pip install it"),
        *BROKEN,
    ),
    notes=("What one should know.",),
)
