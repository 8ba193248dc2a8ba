"""A long steady load, sampled: memory, tasks, files and rows must not grow."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import linear_regression, mean
from typing import TYPE_CHECKING

from benchmarks.load.crowd import Crowd
from benchmarks.load.curves import drawn
from benchmarks.load.site import Setting, site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.load.site import Site

# Idle sessions leave the memory soon, so that the load is steady after the first quarter.
_IDLE_EVICT_S = 60.0
_TITLES = tuple(enumerate(("memory, MiB", "tasks", "open files", "rows in the store")))


@dataclass(frozen=True)
class Sample:
    """The figures of all services at a time, in seconds since the begin."""

    at_s: float
    figures: tuple[float, ...]


@dataclass(frozen=True)
class Soak:
    """The samples of a soak, and the counts at its end."""

    samples: Sequence[Sample]
    runs: int
    lost: int
    doubled: int

    def tabled(self) -> str:
        """Return a Markdown table of the figures and their growth after the first quarter."""
        head = "| | at the begin | after a quarter | at the end | growth an hour |\n|---|--:|--:|--:|--:|"
        rows = (_row(title, [(each.at_s, each.figures[place]) for each in self.samples]) for place, title in _TITLES)
        return "\n".join([head, *rows, "", f"{self.runs} runs; lost {self.lost}, doubled {self.doubled}."])

    def drawn(self) -> str:
        """Return a curve of each figure by time, below each other, as SVG."""
        curves = {title: [(each.at_s / 60, each.figures[at]) for each in self.samples] for at, title in _TITLES}
        return drawn("A soak: figures of the service by minutes", curves)


async def soaked(minutes: float, runs: int, store: str, per_s: float, every_s: float) -> Soak:
    """Act at a steady rate on so many concurrent runs, and sample the services."""
    async with site(Setting(store, idle_evict_s=_IDLE_EVICT_S)) as there:
        crowd, samples = Crowd(there), list[Sample]()
        await crowd.fill(runs)
        began_s = time.monotonic()
        sampling = asyncio.create_task(_sample(there, samples, began_s, every_s))
        acts = max(1, round(minutes * 60 * per_s))
        await crowd.act_steadily(acts, per_s)
        sampling.cancel()
        samples.append(Sample(time.monotonic() - began_s, await _figures(there)))
        await crowd.finish()
        return Soak(samples, acts + runs, crowd.lost(), crowd.doubled())


async def _sample(there: Site, samples: list[Sample], began_s: float, every_s: float) -> None:
    while True:
        samples.append(Sample(time.monotonic() - began_s, await _figures(there)))
        await asyncio.sleep(every_s)


async def _figures(there: Site) -> tuple[float, ...]:
    tasks = sum([await replica.metric("tasks") or 0.0 for replica in there.replicas])
    return there.memory_kib() / 1024, tasks, there.files(), there.rows()


def _row(title: str, points: Sequence[tuple[float, float]]) -> str:
    steady = points[len(points) // 4 :]
    times, values = zip(*steady, strict=True)
    growth = linear_regression(times, values).slope * 3600 if len(steady) > 1 else 0.0
    share = f" ({growth / average:+.1%})" if (average := mean(values)) else ""
    cells = (title, *(f"{each:,.1f}" for each in (points[0][1], values[0], values[-1], growth)))
    return f"| {' | '.join(cells)}{share} |"
