"""Many seeds, and the figures of what happened in them."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from .scene import STAGES
from .trial import tried
from .world import Parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SEEDS_AT_ONCE = 50

# A run that tells of its end takes no messages.
_NEVER = ("steer accepted finishing", "urgent steer accepted finishing")
# What a campaign must have done at every stage of a run before its silence says anything.
ACTS = ("steer accepted", "urgent steer accepted", "stop graceful", "stop immediate", "cancel", "kill")


@dataclass(slots=True)
class Figures:
    """`failing` maps a seed to the first thing to blame in it."""

    seeds: int = 0
    seconds: float = 0.0
    failing: dict[int, str] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        self.seeds += other.seeds
        self.failing |= other.failing
        self.tally += other.tally

    def unreached(self) -> list[str]:
        """What was never done at some stage."""
        wanted = (f"{act} {stage}" for act in ACTS for stage in (*STAGES, "between steps"))
        return [each for each in wanted if not self.tally[each] and each not in _NEVER]


def campaign(seeds: range, jobs: int = 1, parts: Parts | None = None) -> Figures:
    """Try every seed, in so many processes."""
    figures, began = Figures(), time.perf_counter()
    for some in _tried_by(jobs, _pieces(seeds), parts or Parts()):
        figures.add(some)
    figures.seconds = time.perf_counter() - began
    return figures


def _tried_by(jobs: int, pieces: list[range], parts: Parts) -> Iterator[Figures]:
    try_all = partial(_all_tried, parts=parts)
    if jobs == 1:
        yield from map(try_all, pieces)
        return
    # Not forked: a process that has threads (pytest's, say) must not be.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_settle_in) as pool:
        yield from pool.map(try_all, pieces)


def _settle_in() -> None:
    """What is loaded by now stays: frozen, it costs the collections between the seeds nothing."""
    gc.collect()
    gc.freeze()


def _pieces(seeds: range) -> list[range]:
    return [seeds[start : start + _SEEDS_AT_ONCE] for start in range(0, len(seeds), _SEEDS_AT_ONCE)]


def _all_tried(seeds: Iterable[int], parts: Parts) -> Figures:
    figures = Figures()
    for seed in seeds:
        verdict = tried(seed, parts)
        figures.seeds += 1
        figures.tally += verdict.tally
        if verdict.blames:
            figures.failing[seed] = verdict.blames[0]
    return figures
