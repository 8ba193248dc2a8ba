"""The state that all actors of one simulated run share: random numbers, virtual time, the trace, and the stages."""

from __future__ import annotations

import asyncio
import contextvars
import random
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .engine import PROCESS, SimulatedLoop

# The stages at which a stop can reach a run. The current stage is the first of these that is active.
STAGES = (
    *("finishing", "waiting for an approval", "compacting", "in a hook", "writing a row", "reading the log"),
    *("reporting progress", "streaming", "waiting for the model", "retrying", "waiting for late results", "in a tool"),
)
# At these stages the agent waits for others, or for a delay that a provider requires.
_WAITS_FOR_OTHERS = {
    *("waiting for an approval", "compacting", "in a hook", "writing a row", "reading the log"),
    *("reporting progress", "retrying"),
}


# Words that differ between events of the same kind.
_NAME = re.compile(r"\S*[\d\"'\u2018-\u201d]\S*")


class InjectedError(Exception):
    """An error that an actor raises on purpose."""


class Line(NamedTuple):
    at_s: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:12.6f}  {self.who:<10} {self.what}"


def rng_for(seed: int, part: str) -> random.Random:
    """Return a generator; a text as its seed gives the same numbers in every process."""
    return random.Random(f"{seed}/{part}")  # noqa: S311 - reproducible on purpose


class Simulation:
    """One run of the simulation.

    `features` are the kinds of faults of this seed: each kind is absent from many seeds, so that none always hides
    another. `calm` is set for the last part, which has no faults. `violations` are the invariants that do not hold.
    `uncancellable` are tasks that ignored a cancellation. `on_line` is called after each line of the trace.

    `places` returns where each conversation is, in words. `steps` are the kinds of events of this run, each with the
    places before and after it that it changes, or with all places if it changes none.
    """

    def __init__(self, seed: int, loop: SimulatedLoop):
        self.seed = seed
        self.loop = loop
        self.rng = rng_for(seed, "cast")
        self.lines: list[Line] = []
        self.on_line: Callable[[int], None] | None = None
        self.places: Callable[[], list[str]] = lambda: [self.stage()]
        self.steps: set[str] = set()
        self._last_places: list[str] = []
        self.tally: Counter[str] = Counter()
        self.features: set[str] = set()
        self.violations: list[str] = []
        self.calm = False
        self.finishing = False
        self.uncancellable: list[asyncio.Task[Any]] = []
        self._actor_tasks: set[asyncio.Task[Any]] = set()
        self._active: Counter[str] = Counter()
        self._waits = 0
        self._waits_since_s = self._waited_s = 0.0

    def now(self) -> float:
        return self.loop.time()

    def log(self, who: str, what: str) -> None:
        self.lines.append(Line(self.loop.time(), who, what))
        before, now = self._last_places, self.places()
        self._last_places = now
        if before == now:
            before, now = list(dict.fromkeys(now)), []
        else:
            before, now = _without(before, now), _without(now, before)
        words = " ".join(_NAME.sub("", f"{who} {what}").split()[:3])
        self.steps.add(f"{words}: {'; '.join(before)} → {'; '.join(now)}")
        if self.on_line is not None:
            self.on_line(len(self.lines))

    def count(self, what: str) -> None:
        self.tally[what] += 1

    def violation(self, sentence: str) -> None:
        """Record that an invariant does not hold."""
        self.violations.append(sentence)
        self.log("INVARIANT", sentence)

    def occurs(self, feature: str, probability: float) -> bool:
        """Draw whether a kind of fault happens now."""
        return not self.calm and feature in self.features and self.rng.random() < probability

    def delay_s(self, *means: float) -> float:
        """Draw an exponential delay around one of the means."""
        return self.rng.expovariate(1 / self.rng.choice(means))

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str, process: int = 0) -> asyncio.Task[Any]:
        """Start a task of an actor, as opposed to one of the system under test."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        task = self.loop.create_task(coroutine, name=name, context=context)
        self._actor_tasks.add(task)
        return task

    def is_actor(self, task: asyncio.Task[Any]) -> bool:
        return task in self._actor_tasks

    def leave_all(self) -> None:
        """Reset the stages: the process was killed."""
        self._active.clear()
        self.finishing = False
        self._add_waits(-self._waits)

    def enter(self, stage: str) -> None:
        self._active[stage] += 1
        if stage in _WAITS_FOR_OTHERS:
            self._add_waits(1)

    def leave(self, stage: str) -> None:
        self._active[stage] -= 1
        if stage in _WAITS_FOR_OTHERS:
            self._add_waits(-1)

    def turn(self, stage: str, *, on: bool) -> None:
        """Make a stage active or inactive. Repeated calls change nothing."""
        if on != bool(self._active[stage]):
            (self.enter if on else self.leave)(stage)

    def is_at(self, *stages: str) -> bool:
        return any(self._active[stage] for stage in stages)

    def stage(self) -> str:
        return "finishing" if self.finishing else next((s for s in STAGES if self._active[s]), "between steps")

    @contextmanager
    def at(self, stage: str) -> Iterator[None]:
        self.enter(stage)
        try:
            yield
        finally:
            self.leave(stage)

    def waited_s(self) -> float:
        """Return how long the agent has waited for others so far."""
        return self._waited_s + (self.now() - self._waits_since_s if self._waits else 0.0)

    def _add_waits(self, change: int) -> None:
        if not self._waits:
            self._waits_since_s = self.now()
        self._waits += change
        if not self._waits:
            self._waited_s += self.now() - self._waits_since_s

    def ignore_cancellation(self, who: str) -> None:
        """Mark the current task as one that ignores its cancellation, and that may outlive its run."""
        task = asyncio.current_task()
        if task is not None and task not in self.uncancellable:
            self.uncancellable.append(task)
        self.log(who, "ignores its cancellation")

    async def sleep_uncancellable(self, seconds: float, who: str) -> None:
        until = self.now() + seconds
        while (left := until - self.now()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                self.ignore_cancellation(who)


def _without(places: list[str], others: list[str]) -> list[str]:
    left = Counter(places) - Counter(others)
    return sorted(left)
