"""A long steady load, sampled: memory, tasks, files and rows must not grow."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from html import escape
from statistics import linear_regression, mean
from typing import TYPE_CHECKING

from benchmarks.load.crowd import Crowd
from benchmarks.load.site import Setting, site
from benchmarks.picture import OURS, TEXT
from benchmarks.table import figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.load.site import Site

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 860, 170, 80, 35, 28
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
        curves = (_curve(title, [(each.at_s / 60, each.figures[at]) for each in self.samples]) for at, title in _TITLES)
        placed = (f'<g transform="translate(0 {at * _HEIGHT})">{curve}</g>' for at, curve in enumerate(curves))
        size = f"0 0 {_WIDTH} {_HEIGHT * len(_TITLES)}"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif">'
        return "\n".join([head, "<title>A soak: figures of the service by minutes</title>", *placed, "</svg>"]) + "\n"


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


def _curve(title: str, points: Sequence[tuple[float, float]]) -> str:
    """Return a curve of values from zero, by minutes, as a part of an SVG."""
    most_x, most_y = (max(*each, 1e-9) * 1.1 for each in zip(*points, (0.0, 0.0), strict=True))
    width, height = _WIDTH - _LEFT, _HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> str:
        return f"{_LEFT + x / most_x * width:.1f} {_TOP + (1 - y / most_y) * height:.1f}"

    last_x, last_y = points[-1]
    style = f'font-size="13" fill="{TEXT}"'
    end_x, end_y = at(last_x, last_y).split()
    return (
        f'<text x="{_LEFT}" y="20" {style}>{escape(title)}</text>'
        f'<path d="M{at(0, most_y)}L{at(0, 0)}L{at(most_x, 0)}" fill="none" stroke="{TEXT}" opacity="0.35"/>'
        f'<path d="M{"L".join(at(*point) for point in points)}" fill="none" stroke="{OURS}" stroke-width="2"/>'
        f'<text x="8" y="{end_y}" {style}>{figure(last_y)}</text>'
        f'<text x="{end_x}" y="{_HEIGHT - 8}" text-anchor="end" {style}>{last_x:.1f}</text>'
    )
