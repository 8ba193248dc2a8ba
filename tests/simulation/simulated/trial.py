"""Run one seed and collect the violated invariants."""

from __future__ import annotations

import gc
import random
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from .engine import DeadlockError, SimulatedLoop, TooManyCallbacksError, order_for
from .simulation import Line, Simulation, rng_for

# Fields of log entries that differ from one process to the next.
_VARYING = {"exc_info", "run", "run_id"}
# Ids of runs, which are random; those of a worker's end with its name.
_RANDOM_ID = re.compile(r"\b[0-9a-f]{25}(?:[0-9a-f]{7}\b|(?=w[0-9a-f]{6}\b))")


class World(Protocol):
    """The actors around the system under test."""

    async def play(self) -> None: ...
    def on_log(self, event: str, fields: str) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a seed: violated invariants, counts of what happened, the trace, and the kinds of its steps."""

    seed: int
    violations: tuple[str, ...]
    tally: Counter[str]
    lines: tuple[Line, ...]
    steps: frozenset[str] = frozenset()

    def trace(self) -> str:
        return _RANDOM_ID.sub("…", "\n".join(map(str, self.lines)))


def run_seed(seed: int, make_world: Callable[[Simulation], World], max_callbacks: int) -> Verdict:
    gc.disable()  # the garbage of a seed stays in the young generation, whose collection is cheap
    try:
        verdict = _run(seed, make_world, max_callbacks)
        with _silence():
            gc.collect(2 if seed % 100 == 0 else 0)
    finally:
        gc.enable()
    return verdict


def _run(seed: int, make_world: Callable[[Simulation], World], max_callbacks: int) -> Verdict:
    random.seed(seed)  # for code that does not use the simulation's generator
    order = order_for(rng_for(seed, "order"))
    loop = SimulatedLoop(order, max_callbacks)
    sim = Simulation(seed, loop)
    sim.log("seed", f"{seed}: callbacks {type(order).__name__}")
    world = make_world(sim)
    with _captured_logs(world.on_log):
        try:
            sim.log("seed", f"with {', '.join(sorted(sim.features))}")
            sim.steps.clear()
            loop.run_until_complete(sim.spawn(world.play(), "the world"))
        except (DeadlockError, TooManyCallbacksError) as e:
            sim.violation(str(e))
        except Exception:  # noqa: BLE001 - a defect of the simulation is reported like any other failure
            sim.violation(f"The simulation failed: {traceback.format_exc()}")
        for error in loop.errors:
            sim.violation(f"Unhandled error in the event loop: {error}")
        sim.tally["callback"] = loop.callbacks
        sim.count(f"order {type(order).__name__}")
        verdict = Verdict(seed, tuple(sim.violations), Counter(sim.tally), tuple(sim.lines), frozenset(sim.steps))
        with _silence():
            loop.close()
            world.close()
    return verdict


@contextmanager
def _silence() -> Iterator[None]:
    """Ignore the warnings of pending coroutines that are torn down."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = before


@contextmanager
def _captured_logs(on_log: Callable[[str, str], None]) -> Iterator[None]:
    """Pass every log entry from the level "info" on to `on_log`, and to nothing else."""
    before = structlog.get_config()

    def process(_logger: Any, method: str, entry: Any) -> Any:
        if method != "debug":
            fields = dict(entry)
            on_log(fields.pop("event"), _described(fields))
        raise structlog.DropEvent

    structlog.configure(
        processors=[process],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _described(fields: dict[str, Any]) -> str:
    """Describe the fields of a log entry that are the same in every process."""
    kept = {k: v for k, v in fields.items() if isinstance(v, str | int | float) and k not in _VARYING}
    text = "".join(f" {key}={value}" for key, value in kept.items() if " at 0x" not in str(value))
    if (error := fields.get("exc_info")) is not None:
        text += f" {error if isinstance(error, BaseException) else sys.exc_info()[1]!r}"
    return text
