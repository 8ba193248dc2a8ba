"""What everybody in a conversation shares: the seed's chance, the time, the story, and where things are."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .engine import LIFE
from .trace import Trace

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from .engine import SimulatedLoop

# Where a stop may find a run, the most telling first: the stage is the first of these where something is.
STAGES = (
    "finishing",
    "waiting for an approval",
    "compacting",
    "in a hook",
    "writing a row",
    "reading the log",
    "telling progress",
    "streaming",
    "waiting for the model",
    "retrying",
    "waiting for late results",
    "in a tool",
)
# While somebody is at one of these, a run waits for others, or for a time that a provider has named.
_HOLDING = {
    "waiting for an approval",
    "compacting",
    "in a hook",
    "writing a row",
    "reading the log",
    "telling progress",
    "retrying",
}


class InjectedFault(Exception):  # noqa: N818 - what the cast breaks on purpose
    """Something that a module of the cast breaks on purpose."""


def chance_of(seed: int, part: str) -> random.Random:
    """A source of chance; a text as its seed gives the same numbers in every process."""
    return random.Random(f"{seed}/{part}")  # noqa: S311 - the seed is the point


class Scenario:
    """`calm` is set for the last runs, in which nothing odd happens any more; `finishing` while a run tells of its end.

    `features` are the kinds of trouble that this seed has: every kind is absent from many seeds, so that one does not
    always hide behind another.
    """

    def __init__(self, seed: int, loop: SimulatedLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.chance = chance_of(seed, "cast")
        self.story = Trace(loop.time)
        self.tally: Counter[str] = Counter()
        self.features: set[str] = set()
        self.blames: list[str] = []
        self.calm = False
        self.finishing = False
        self.deaf: list[asyncio.Task[Any]] = []
        self._ours: list[asyncio.Task[Any]] = []
        self._busy: Counter[str] = Counter()
        self._holding = 0
        self._held_since = self._held_s = 0.0

    def now(self) -> float:
        return self.loop.time()

    def tell(self, who: str, what: str) -> None:
        self.story.tell(who, what)

    def count(self, what: str) -> None:
        self.tally[what] += 1

    def blame(self, sentence: str) -> None:
        """An invariant does not hold."""
        self.blames.append(sentence)
        self.tell("JUDGE", sentence)

    def happens(self, feature: str, likelihood: float) -> bool:
        """Whether a kind of trouble strikes now."""
        return not self.calm and feature in self.features and self.chance.random() < likelihood

    def some_s(self, *scales: float) -> float:
        """A while: exponential around one of the scales."""
        return self.chance.expovariate(1 / self.chance.choice(scales))

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str, life: int = 0) -> asyncio.Task[Any]:
        """A task of the cast's own, as opposed to one of the agent's; `life` is the one that it ends with."""
        context = contextvars.copy_context()
        context.run(LIFE.set, life)
        task = self.loop.create_task(coroutine, name=name, context=context)
        self._ours.append(task)
        return task

    def is_ours(self, task: asyncio.Task[Any]) -> bool:
        return task in self._ours

    def leave_all(self) -> None:
        """Nothing is at any stage: the process has died."""
        self._busy.clear()
        self.finishing = False
        self._hold(-self._holding)

    def enter(self, stage: str) -> None:
        self._busy[stage] += 1
        if stage in _HOLDING:
            self._hold(1)

    def leave(self, stage: str) -> None:
        self._busy[stage] -= 1
        if stage in _HOLDING:
            self._hold(-1)

    def turn(self, stage: str, *, on: bool) -> None:
        """Be at a stage from now on, or no longer, however often that is said."""
        if on != bool(self._busy[stage]):
            (self.enter if on else self.leave)(stage)

    def is_at(self, *stages: str) -> bool:
        return any(self._busy[stage] for stage in stages)

    def held_s(self) -> float:
        """How long the agent has been held up by others so far, in all."""
        return self._held_s + (self.now() - self._held_since if self._holding else 0.0)

    @contextmanager
    def at(self, stage: str) -> Iterator[None]:
        self.enter(stage)
        try:
            yield
        finally:
            self.leave(stage)

    def stage(self) -> str:
        return "finishing" if self.finishing else next((s for s in STAGES if self._busy[s]), "between steps")

    def _hold(self, more: int) -> None:
        if not self._holding:
            self._held_since = self.now()
        self._holding += more
        if not self._holding:
            self._held_s += self.now() - self._held_since

    def turn_deaf(self, who: str) -> None:
        """The task that this is called in has not heeded its cancellation, and may outlive its run."""
        task = asyncio.current_task()
        if task is not None and task not in self.deaf:
            self.deaf.append(task)
        self.tell(who, "does not heed the cancellation")

    async def sleep_deaf(self, seconds: float, who: str) -> None:
        """Sleep on, however often the task is cancelled."""
        until = self.now() + seconds
        while (left := until - self.now()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                self.turn_deaf(who)
