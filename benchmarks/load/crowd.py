"""The people: they begin, steer, stop and end runs, and check that nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.load.site import Site

_BEGINNING_AT_ONCE = 64
# Time for the posts and reactions that come last.
_SETTLED_S = 1.0


@dataclass(frozen=True)
class Run:
    """A run: `name` is in its prompt, `ts` is its message and thread; its person and channel have the same number."""

    number: int
    ts: str

    @property
    def name(self) -> str:
        return f"run-{self.number}"


@dataclass
class Times:
    """Latencies in seconds, by what people wait for."""

    ack: list[float] = field(default_factory=list)
    steer: list[float] = field(default_factory=list)
    stop: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)


class Crowd:
    """People in many channels; `active` are the runs that the model holds open, the longest unused first."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.active: deque[Run] = deque()
        self._has_active = asyncio.Condition()
        self.times = Times()
        self.begun: list[Run] = []
        self.ended: list[Run] = []
        self.stopped: list[Run] = []
        self._numbers, self._notes = count(), count()
        self._steered: list[tuple[Run, str, str]] = []

    async def begin(self, *, until: str = "asked") -> Run:
        """Begin a run and wait for a fact about it; `asked`: its first model call."""
        facts, number = self.site.facts, next(self._numbers)
        ts = await self.site.slack.say(number, f"<bot> please do run-{number}", channel=number)
        self.begun.append(run := Run(number, ts))
        self.times.ack.append(await facts.until("accepted", ts) - float(ts))
        await facts.until(until, run.name if until == "asked" else ts)
        return run

    async def fill(self, runs: int) -> float:
        """Begin runs until so many are active; return the seconds."""
        began_s, free = time.time(), asyncio.Semaphore(_BEGINNING_AT_ONCE)

        async def one() -> None:
            async with free:
                with suppress(TimeoutError):  # it counts as lost
                    self.active.append(await self.begin())

        await asyncio.gather(*(one() for _ in range(runs - len(self.active))))
        return time.time() - began_s

    async def post(self, run: Run) -> str:
        """Post an urgent message into the thread of a run; returns its ts."""
        note = f"note-{next(self._notes)}"
        ts = await self.site.slack.say(run.number, f"!also {note}", run.ts, run.number)
        self._steered.append((run, note, ts))
        return ts

    async def steer(self, run: Run) -> None:
        """Post an urgent message and wait until the run has read it."""
        ts = await self.post(run)
        self.times.steer.append(await self.site.facts.until("read", ts) - float(ts))

    async def stop(self, run: Run) -> None:
        """Stop a run by ❌ and wait until its thread says so."""
        self.stopped.append(run)
        await self.site.slack.react(run.number, run.ts, "x", run.number)
        stopped_s = await self.site.facts.until("stopped", run.ts)
        self.times.stop.append(stopped_s - await self.site.facts.until("stop asked", run.ts))

    async def end(self, run: Run) -> None:
        """Let the model answer, and wait for the answer in the thread."""
        ended_s = time.time()
        self.ended.append(run)
        self.site.model.end(run.name)
        self.times.answer.append(await self.site.facts.until("answered", run.ts) - ended_s)

    async def act(self, number: int) -> None:
        """Steer a run, stop it or let it end, in turn, and begin another one in its place."""
        async with self._has_active:
            await self._has_active.wait_for(lambda: self.active)
            run = self.active.popleft()
        with suppress(TimeoutError):  # it counts as lost
            await self.steer(run)
            await (self.stop(run) if number % 2 else self.end(run))
        begun = await self.begin()
        async with self._has_active:
            self.active.append(begun)
            self._has_active.notify()

    async def act_steadily(self, acts: int, per_s: float) -> None:
        """Act so many times at a steady rate; an act waits while no run is free."""
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(acts):
                await asyncio.sleep(began_s + number / per_s - time.monotonic())
                group.create_task(self.act(number))

    async def finish(self) -> None:
        """Let all active runs end, and wait for their answers. Their times do not count: it is a burst."""
        times, self.times = self.times, Times()
        with suppress(TimeoutError):  # they count as lost
            await asyncio.gather(*(self.end(run) for run in self.active))
        self.times = times
        self.active.clear()
        await asyncio.sleep(_SETTLED_S)

    def lost(self) -> int:
        """Return the number of messages without effect: no answer, no 👀, no stop, or missing in the last request."""
        facts, ended = self.site.facts, {run.ts for run in self.ended}
        silent = [run for run in self.begun if not facts.count["accepted", run.ts]]
        silent += [run for run in self.ended if not facts.count["answered", run.ts]]
        silent += [run for run in self.stopped if not facts.count["stopped", run.ts]]
        unread = [note for _, note, ts in self._steered if not facts.count["read", ts]]
        missing = [n for run, n, _ in self._steered if run.ts in ended and not self.site.model.notes[run.name][n]]
        return len(set(silent)) + len({*unread, *missing})

    def doubled(self) -> int:
        """Return the number of messages with more than one answer, stop notice, or copy in the last request."""
        facts = self.site.facts
        twice = [run for run in self.ended if facts.count["answered", run.ts] + facts.count["stopped", run.ts] > 1]
        twice += [run for run in self.stopped if facts.count["answered", run.ts] + facts.count["stopped", run.ts] > 1]
        copies = [note for run, note, _ in self._steered if self.site.model.notes[run.name][note] > 1]
        return len(twice) + len(copies)
