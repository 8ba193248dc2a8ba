"""Declare and measure benchmarks: each side runs in its own process, the sides in turn."""

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

# By side and row: the mean cost of an operation in each round, in the row's unit.
Results = dict[tuple[str, str], list[float]]

Unit = Literal["µs", "ms", "KiB", "times"]
SIZE: dict[Unit, float] = {"µs": 1e-6, "ms": 1e-3, "KiB": 1024.0, "times": 1.0}  # in seconds, bytes, or dimensionless

Meter = Literal["clock", "cpu", "itself"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, with the same key on every side.

    Args:
        key: the key of the operation in each side.
        title: the title in the table.
        unit: the unit of the figures.
        target: upper limit for our side, in the unit.
        target_ratio: upper limit for our side, as a ratio to the benchmark's base.
        meter: `clock`: elapsed time; `cpu`: CPU time of the process; `itself`: the operation returns its cost, in
            seconds or bytes.
        per: units of work per operation; the figure is the cost of one unit.
        once: measure one operation per process, because its cost is constant.
        of: the keys of two rows; this row is not measured, but is the ratio of the first to the second.
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
    """One of the compared implementations.

    Args:
        name: the heading of its column.
        operations: a context manager that runs in the worker's event loop and gives the operations by row key, without
            rows that this side does not support.
        packages: optional distributions that it needs; its version is that of the first one.
        install: the command that installs them.
    """

    name: str
    operations: Callable[[], AbstractAsyncContextManager[Operations]]
    packages: tuple[str, ...] = ()
    install: str | None = None

    @property
    def version(self) -> str | None:
        """Return the version of its distribution; empty if it needs none, `None` if one is not installed."""
        try:
            return [*map(version, self.packages), ""][0]
        except PackageNotFoundError:
            return None

    @property
    def label(self) -> str:
        return f"{self.name} {self.version or ''}".rstrip()


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The declaration of a benchmark; each file has one, named `BENCHMARK`.

    Args:
        title: the heading.
        rows: the measurements.
        sides: the compared implementations; the first one is ours, and the targets apply to it.
        base: the side to which ratios refer; by default ours.
        pictured: the keys of one or two rows for the page's bar chart.
        notes: paragraphs below the table.
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
    """The amount of measuring.

    Args:
        processes: processes for each side, in succession; the speed of processes varies by some percent.
        rounds: rounds in each process.
        round_s: approximate length of a round for each row, in seconds.
    """

    processes: int
    rounds: int
    round_s: float


def load(module: str) -> Benchmark:
    """Import the benchmark of a module.

    Raises:
        ImportError, AttributeError: the module is missing, or has no `BENCHMARK`.
    """
    benchmark: Benchmark = importlib.import_module(module).BENCHMARK
    return benchmark


def measure(module: str, effort: Effort) -> Results:
    """Measure every row on every side that is installed.

    Each round measures all rows, and each row on all sides in turn, so load on the machine affects all sides.

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
    """Compute the rows that are ratios of two rows, per round."""
    quotients: Results = {}
    for row in benchmark.rows:
        for side in benchmark.sides if row.of else ():
            over, under = (results.get((side.name, key), []) for key in row.of or ())
            if over and under:
                quotients[side.name, row.key] = [a / b for a, b in zip(over, under, strict=True)]
    return quotients
