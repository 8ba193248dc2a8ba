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

from .trial import tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .trial import Verdict

    Try = Callable[[int], Verdict]

_SEEDS_AT_ONCE = 50


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

    def unreached(self, wanted: Iterable[str]) -> list[str]:
        """What never happened of what is to happen before silence says anything."""
        return [each for each in wanted if not self.tally[each]]


def campaign(seeds: range, jobs: int = 1, try_one: Try = tried) -> Figures:
    """Try every seed, in so many processes."""
    figures, began = Figures(), time.perf_counter()
    for some in _tried_by(jobs, _pieces(seeds), try_one):
        figures.add(some)
    figures.seconds = time.perf_counter() - began
    return figures


def _tried_by(jobs: int, pieces: list[range], try_one: Try) -> Iterator[Figures]:
    try_all = partial(_all_tried, try_one=try_one)
    if jobs == 1:
        yield from map(try_all, pieces)
        return
    # Not forked: a process that has threads (pytest's, say) must not be.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _settle_in, (try_one,)) as pool:
        yield from pool.map(try_all, pieces)


def _settle_in(try_one: Try) -> None:
    """What is loaded by now stays: frozen, it costs the collections between the seeds nothing."""
    try_one(0)
    gc.collect()
    gc.freeze()


def _pieces(seeds: range) -> list[range]:
    return [seeds[start : start + _SEEDS_AT_ONCE] for start in range(0, len(seeds), _SEEDS_AT_ONCE)]


def _all_tried(seeds: Iterable[int], try_one: Try) -> Figures:
    figures = Figures()
    for seed in seeds:
        verdict = try_one(seed)
        figures.seeds += 1
        figures.tally += verdict.tally
        if verdict.blames:
            figures.failing[seed] = verdict.blames[0]
    return figures
