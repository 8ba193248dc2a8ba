"""Latencies, throughput and memory with a number of concurrent runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from benchmarks.distribution import Distribution
from benchmarks.load.crowd import Crowd, Times
from benchmarks.load.curves import drawn
from benchmarks.load.site import Setting, site
from benchmarks.table import figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.load.site import Site

_WARM_UP = 5
_OUTSTANDING = 32

HEAD = (
    "| concurrent runs | begun/s | ack, ms | steer, ms | stop, ms | answer, ms | messages read/s | events/s "
    "| KiB a run | loop lag, ms | CPU of service, Slack, driver, % | lost, doubled |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class Effort:
    """The amount of measuring: acts for the latencies and their rate, and seconds for the throughput."""

    acts: int
    per_s: float
    seconds: float


@dataclass(frozen=True)
class Throughput:
    """Messages that active runs read, and acknowledged events, a second; the CPU time of the processes."""

    read_per_s: float
    events_per_s: float
    cpu: tuple[float, ...]


@dataclass(frozen=True)
class Load:
    """The figures of so many concurrent runs: as a row of a table, and 99th percentiles in milliseconds by name."""

    runs: int
    row: str
    latencies: Mapping[str, float]


def pictured(loads: Sequence[Load]) -> str:
    """Return a curve of each latency by the number of runs, as SVG."""
    titles = {name: f"{name}, 99th percentile in ms" for name in loads[0].latencies}
    curves = {title: [(each.runs, each.latencies[name]) for each in loads] for name, title in titles.items()}
    return drawn("Latencies of the service by concurrent runs", curves)


async def measured(runs: int, setting: Setting, effort: Effort) -> Load:
    """Act on so many concurrent runs, and return the figures."""
    async with site(setting) as there:
        crowd = Crowd(there)
        await crowd.fill(_WARM_UP)
        await crowd.finish()
        rest_kib = there.memory_kib()
        took_s = await crowd.fill(runs)
        run_kib = (there.memory_kib() - rest_kib) / runs
        crowd.times = times = Times()
        await crowd.act_steadily(effort.acts, effort.per_s)
        flow = await throughput(crowd, effort.seconds)
        lag_s = max([*there.lags_s, await _lag_s(there)])
        await crowd.finish()
        latencies = {"ack": times.ack, "steer": times.steer, "stop": times.stop, "answer": times.answer}
        cells = (
            f"{runs}{', with limits' if setting.limits else ''}",
            figure(runs / took_s),
            *map(_quantiles, latencies.values()),
            figure(flow.read_per_s),
            figure(flow.events_per_s),
            figure(run_kib),
            figure(lag_s * 1000),
            ", ".join(f"{each * 100:.0f}" for each in flow.cpu),
            f"{crowd.lost()}, {crowd.doubled()}",
        )
        slowest = {name: Distribution(each).at(0.99) * 1000 for name, each in latencies.items()}
        return Load(runs, f"| {' | '.join(cells)} |", slowest)


async def throughput(crowd: Crowd, seconds: float) -> Throughput:
    """Steer all runs in turn: a person posts the next message when the run has read one, so no backlog can grow."""
    site, runs = crowd.site, list(crowd.active)
    until_s, turn, times = time.monotonic() + seconds, cycle(runs), crowd.times
    before, events, crowd.times = site.cpu_s(), site.slack.events, Times()

    async def person() -> None:
        while time.monotonic() < until_s:
            with suppress(TimeoutError):  # it counts as lost
                await crowd.steer(next(turn))

    began_s = time.monotonic()
    await asyncio.gather(*(person() for _ in range(_OUTSTANDING)))
    took_s = time.monotonic() - began_s
    read, crowd.times = len(crowd.times.steer), times
    cpu = tuple((now - then) / took_s for now, then in zip(site.cpu_s(), before, strict=True))
    return Throughput(read / took_s, (site.slack.events - events) / took_s, cpu)


async def _lag_s(there: Site) -> float:
    return max([await replica.metric("loop_lag_seconds") or 0.0 for replica in there.replicas])


def _quantiles(times_s: list[float]) -> str:
    """Return the median and the 99th percentile in milliseconds; `-` without times."""
    times = Distribution(times_s)
    return " / ".join(f"{times.at(share) * 1000:,.0f}" for share in (0.5, 0.99)) if times_s else "-"
