"""What a benchmark file declares, and how its sides are measured: each in a process of its own, in turn."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from benchmarks.process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    Operation = Callable[[], Awaitable[object]]
    Operations = Mapping[str, Operation]

# By side and row: for each round the microseconds that an operation took in the mean.
Results = dict[tuple[str, str], list[float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to measure, under the same key on every side; the target is for our side, in microseconds."""

    key: str
    title: str
    target_us: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things that are compared.

    Args:
        name: the heading of its column.
        operations: enters what is to be measured, in the worker's event loop, and gives its operations by row key; a
            row that this side cannot do is left out.
        package: the distribution that it needs and that need not be there.
        install: the command that installs the distribution.
    """

    name: str
    operations: Callable[[], AbstractAsyncContextManager[Operations]]
    package: str | None = None
    install: str | None = None

    @property
    def version(self) -> str | None:
        """The version of its distribution; blank where it needs none, `None` where it is not installed."""
        try:
            return version(self.package) if self.package else ""
        except PackageNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a benchmark file calls `BENCHMARK`. The first side is ours; the notes stand under the table."""

    title: str
    rows: tuple[Row, ...]
    sides: tuple[Side, ...]
    notes: tuple[str, ...] = ()


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
            for number in range(effort.rounds):
                for row in benchmark.rows:
                    for name, worker in workers if number % 2 else reversed(workers):
                        if row.key in worker.keys:
                            mean_us = worker.mean_s(row.key, effort.round_s) * 1e6
                            results.setdefault((name, row.key), []).append(mean_us)
    return results
