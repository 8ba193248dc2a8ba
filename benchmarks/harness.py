"""What a benchmark file declares, and how its sides are measured: each in a process of its own, in turn."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from benchmarks.process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    Operation = Callable[[], Awaitable[object]]
    Operations = Mapping[str, Operation]

# By side and row: for each round what an operation cost in the mean, in the row's unit.
Results = dict[tuple[str, str], list[float]]

Unit = Literal["µs", "ms", "KiB", "times"]
SIZE: dict[Unit, float] = {"µs": 1e-6, "ms": 1e-3, "KiB": 1024.0, "times": 1.0}  # in seconds, bytes, or nothing

Meter = Literal["clock", "cpu", "itself"]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to measure, under the same key on every side.

    Args:
        key: the operation of each side that does it.
        title: what stands in the table.
        unit: in which it is given.
        target: what our side may cost at most, in the unit.
        target_ratio: what it may cost at most beside the benchmark's base.
        meter: the time that passes; or the CPU time of the process; or what the operation itself gives, in seconds or
            bytes.
        per: how many of what the title names one operation does.
        once: one operation in each process is enough, because it always comes to the same.
        of: the keys of two rows; this one is not measured, but is the first divided by the second.
    """

    key: str
    title: str
    unit: Unit = "µs"
    target: float | None = None
    target_ratio: float | None = None
    meter: Meter = "clock"
    per: int = 1
    once: bool = False
    of: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things that are compared.

    Args:
        name: the heading of its column.
        operations: enters what is to be measured, in the worker's event loop, and gives its operations by row key; a
            row that this side cannot do is left out.
        packages: the distributions that it needs and that need not be there; its version is the first one's.
        install: the command that installs them.
    """

    name: str
    operations: Callable[[], AbstractAsyncContextManager[Operations]]
    packages: tuple[str, ...] = ()
    install: str | None = None

    @property
    def version(self) -> str | None:
        """The version of its distribution; blank where it needs none, `None` where one is not installed."""
        try:
            return [*map(version, self.packages), ""][0]
        except PackageNotFoundError:
            return None

    @property
    def label(self) -> str:
        return f"{self.name} {self.version or ''}".rstrip()


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a benchmark file calls `BENCHMARK`.

    Args:
        title: the heading.
        rows: what is measured.
        sides: what is compared; the first one is ours, and the targets are for it.
        base: the side by which the others are divided; ours where it is not named.
        pictured: the keys of one or two rows that the page shows as a picture.
        notes: stand under the table, one paragraph each.
    """

    title: str
    rows: tuple[Row, ...]
    sides: tuple[Side, ...]
    base: str | None = None
    pictured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ours(self) -> Side:
        return self.sides[0]

    @property
    def base_name(self) -> str:
        return self.base or self.ours.name


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    Args:
        processes: for each side, one after the other: by chance one is some percent faster than the next.
        rounds: in each process.
        round_s: about how long a round lasts for each row, in seconds.
    """

    processes: int
    rounds: int
    round_s: float


def load(module: str) -> Benchmark:
    """The benchmark that a module declares.

    Raises:
        ImportError, AttributeError: there is no such module, or it declares none.
    """
    benchmark: Benchmark = importlib.import_module(module).BENCHMARK
    return benchmark


def measure(module: str, effort: Effort) -> Results:
    """Measure every row on every side that is installed.

    A round goes through all rows, and in each through the sides in turn: what slows the machine down slows all.

    Raises:
        WorkerError: a side failed.
    """
    benchmark = load(module)
    there = [side.name for side in benchmark.sides if side.version is not None]
    results: Results = {}
    for _ in range(effort.processes):
        with ExitStack() as stack:
            workers = [(name, stack.enter_context(WorkerProcess(module, name))) for name in there]
            for _, worker in workers:
                worker.wait_until_ready()
            for number in range(effort.rounds):
                for row in _rows_of_round(benchmark, number):
                    for name, worker in workers if number % 2 else reversed(workers):
                        if row.key in worker.keys:
                            cost = worker.mean(row.key, 0 if row.once else effort.round_s) / row.per / SIZE[row.unit]
                            results.setdefault((name, row.key), []).append(cost)
    return results | _quotients(benchmark, results)


def _rows_of_round(benchmark: Benchmark, number: int) -> list[Row]:
    return [row for row in benchmark.rows if row.of is None and not (row.once and number)]


def _quotients(benchmark: Benchmark, results: Results) -> Results:
    """The rows that are one row divided by another, round by round."""
    quotients: Results = {}
    for row in benchmark.rows:
        for side in benchmark.sides if row.of else ():
            over, under = (results.get((side.name, key), []) for key in row.of or ())
            if over and under:
                quotients[side.name, row.key] = [a / b for a, b in zip(over, under, strict=True)]
    return quotients
