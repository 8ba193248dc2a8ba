"""Which of the ready callbacks runs next.

asyncio runs them first in, first out. This much of it is kept in every order:

- What one task does is in order. A task has one step in the queue at most, so any choice keeps that.
- Callbacks of one object (the methods of a `Work`, say) run in the order in which they were queued.
- Nothing overtakes the first step of a task that was queued before it: a task which is cancelled before it begins never
  runs at all, and that no clean-up code could bear.

Everything else may overtake: two tasks that wake up, the callbacks of one future, timers due at one instant. The
primitives of asyncio bear that; `test_asyncio_in_any_order.py` shows it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence


@dataclass(slots=True)
class Ready:
    """A callback that may run.

    `owner` is the object it belongs to: a task, another object with methods, or nothing. `life` is the one that it ends
    with. `begins` marks the first step of a task.
    """

    handle: asyncio.Handle
    owner: Any
    life: int = 0
    begins: bool = False


class Order(Protocol):
    def pick(self, ready: Sequence[Ready]) -> int:
        """The index of the one to run next."""
        ...

    def pause_s(self) -> float:
        """How long that callback took, in virtual seconds."""
        ...


class InOrder:
    """asyncio's own: first in, first out."""

    def __init__(self, chance: random.Random, most_pause_s: float = 0.0) -> None:
        self._chance = chance
        self._most_pause_s = most_pause_s

    def pick(self, ready: Sequence[Ready]) -> int:
        return 0

    def pause_s(self) -> float:
        # Where callbacks take time, timers come due between the steps of what never waits.
        return self._chance.random() * self._most_pause_s if self._most_pause_s else 0.0


class Shuffled(InOrder):
    """Any of them, each as likely."""

    def pick(self, ready: Sequence[Ready]) -> int:
        return _first_of_its_owner(ready, self._chance.randrange(_reach(ready)))


class Lopsided(InOrder):
    """Some tasks are always quicker than others, until that changes.

    A race that needs several steps of one task between two steps of another is rare where every step is a fair draw,
    and common here.
    """

    def __init__(self, chance: random.Random, most_pause_s: float = 0.0) -> None:
        super().__init__(chance, most_pause_s)
        self._weights: dict[asyncio.Task[Any], float] = {}

    def pick(self, ready: Sequence[Ready]) -> int:
        if self._chance.random() < 0.1:  # so that nobody waits for ever
            return _first_of_its_owner(ready, self._chance.randrange(_reach(ready)))
        weights = [self._weight(each.owner) for each in ready[: _reach(ready)]]
        index = weights.index(max(weights))
        owner = ready[index].owner
        if isinstance(owner, asyncio.Task) and self._chance.random() < 0.03:
            self._weights[owner] = 0.0
        return _first_of_its_owner(ready, index)

    def _weight(self, owner: Any) -> float:
        if not isinstance(owner, asyncio.Task):
            return self._chance.random()
        if owner not in self._weights:
            self._weights[owner] = self._chance.random()
        return self._weights[owner]


def order_for(chance: random.Random) -> Order:
    """One of the orders; in some of them callbacks take up to 20 or 200 µs."""
    kind = chance.choice([InOrder, Shuffled, Shuffled, Lopsided])
    return kind(chance, chance.choice([0.0, 0.0, 20e-6, 200e-6]))


def _reach(ready: Sequence[Ready]) -> int:
    """How many, from the first on, may be chosen from: up to the first one that begins a task."""
    return next((i + 1 for i, each in enumerate(ready) if each.begins), len(ready))


def _first_of_its_owner(ready: Sequence[Ready], index: int) -> int:
    owner = ready[index].owner
    if owner is None:
        return index
    return next(i for i, each in enumerate(ready) if each.owner is owner)
