"""Replicas: throughput of short runs, and how long runs rest when a replica is killed or restarted."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.distribution import Distribution
from benchmarks.load.crowd import Crowd
from benchmarks.load.site import Setting, site
from benchmarks.table import figure

if TYPE_CHECKING:
    from benchmarks.load.crowd import Run
    from benchmarks.load.site import Replica

_OUTSTANDING = 50

HEAD = (
    "| replicas | short runs/s | CPU of the busiest replica, Slack, driver, % "
    "| of a run: Redis commands, their CPU ms, KiB kept "
    "| kill -9 → continued, s | SIGTERM → continued, s | restart → continued, s | lost, doubled |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class Rest:
    """How long runs rested: from the signal, and from the start of the next process, to the next model call."""

    since_signal_s: list[float]
    since_start_s: list[float]


async def replicated(setting: Setting, runs: int, seconds: float) -> str:
    """Return the row of so many replicas: a load of short runs, then failures during so many runs."""
    async with site(setting) as there:
        crowd = Crowd(there)
        there.model.holds = False
        before = there.redis_info() if setting.store != "sqlite" else (0.0, 0.0, 0.0)
        per_s, cpu = await _short_runs(crowd, seconds)
        after = there.redis_info() if setting.store != "sqlite" else before
        commands, redis_s, kib = ((now - then) / len(crowd.ended) for now, then in zip(after, before, strict=True))
        there.model.holds = True
        killed, restarted = [await _failure(crowd, runs, orderly=orderly) for orderly in (False, True)]
        cells = (
            f"{setting.replicas}, {setting.store}",
            figure(per_s),
            ", ".join(f"{each * 100:.0f}" for each in cpu),
            "-" if setting.store == "sqlite" else f"{commands:.0f}, {redis_s * 1000:.1f}, {kib:.1f}",
            _spread(killed.since_signal_s),
            _spread(restarted.since_signal_s),
            _spread(restarted.since_start_s) if setting.replicas == 1 else "-",
            f"{crowd.lost()}, {crowd.doubled()}",
        )
        return f"| {' | '.join(cells)} |"


async def _short_runs(crowd: Crowd, seconds: float) -> tuple[float, tuple[float, ...]]:
    """People begin the next run when they have the answer; return the runs and the CPU time a second."""
    there, until_s = crowd.site, time.monotonic() + seconds

    async def person() -> None:
        while time.monotonic() < until_s:
            crowd.ended.append(await crowd.begin(until="answered"))

    before, began_s = there.cpu_s(), time.monotonic()
    await asyncio.gather(*(person() for _ in range(_OUTSTANDING)))
    took_s = time.monotonic() - began_s
    return len(crowd.ended) / took_s, tuple(
        (now - then) / took_s for now, then in zip(there.cpu_s(), before, strict=True)
    )


async def _begun(crowd: Crowd, runs: int) -> dict[Replica, list[Run]]:
    """Begin runs one after the other; return them by the replica whose number of active runs it raised."""
    replicas = crowd.site.replicas
    owned: dict[Replica, list[Run]] = {replica: [] for replica in replicas}
    for _ in range(runs):
        run = await crowd.begin()
        crowd.active.append(run)
        counts = [await replica.metric("runs_active") for replica in replicas]
        owned[next(each for each, now in zip(replicas, counts, strict=True) if now != len(owned[each]))].append(run)
    return owned


async def _failure(crowd: Crowd, runs: int, *, orderly: bool) -> Rest:
    """Kill the replica with the most runs, or ask it to end, while the runs are held open.

    Other replicas, if there are any, continue the runs of a killed one before it is started again. A message is posted
    into each thread as soon as the process has ended.
    """
    there = crowd.site
    owned = await _begun(crowd, runs)
    victim = max(owned, key=lambda each: len(owned[each]))
    names = [run.name for run in owned[victim]]
    for name in names:
        there.facts.forget("asked", name)
    signalled_s = time.time()
    await (victim.terminate() if orderly else victim.kill())
    posts = [await crowd.post(run) for run in owned[victim]]
    continued = asyncio.gather(*(there.facts.until("asked", name) for name in names))
    if len(there.replicas) > 1 and not orderly:
        await continued
    started_s = time.time()
    await victim.start()
    times_s = await continued
    await asyncio.gather(*(there.facts.until("read", ts) for ts in posts))
    await crowd.finish()
    return Rest([each - signalled_s for each in times_s], [each - started_s for each in times_s])


def _spread(times_s: list[float]) -> str:
    times = Distribution(times_s)
    return f"{len(times_s)}: {times.at(0.5):.2f} / {times.at(1.0):.2f}"
