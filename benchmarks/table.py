"""What was measured, as a table."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.harness import Benchmark, Effort, Results, Row, Side

_NONE = "-"


def rendered(benchmark: Benchmark, results: Results, effort: Effort) -> str:
    """The table of one benchmark, with what one needs to read it."""
    ours, *others = benchmark.sides
    there = [side for side in others if side.version is not None]
    head = ["", ours.name, *(cell for side in there for cell in (f"{side.name} {side.version}".rstrip(), "ratio"))]
    body = [_cells(row, ours, there, results) for row in benchmark.rows]
    lines = [
        f"{benchmark.title} ({_circumstances(effort)})",
        "",
        *_aligned([[*head, "target", ""], *body]),
        "",
        "µs per operation: median of the rounds [quartiles], the sides in turn. Ratio: theirs divided by ours.",
        *(f"{side.name} is not installed; to compare: {side.install}" for side in others if side not in there),
        *benchmark.notes,
    ]
    return "\n".join(lines)


def _circumstances(effort: Effort) -> str:
    return (
        f"{platform.python_implementation()} {platform.python_version()}, uvloop {version('uvloop')}, "
        f"{os.cpu_count()} cores; {effort.processes} x {effort.rounds} rounds of {effort.round_s * 1000:g} ms"
    )


def _cells(row: Row, ours: Side, others: list[Side], results: Results) -> list[str]:
    own = results.get((ours.name, row.key))
    cells = [row.title, _spread(own)]
    for side in others:
        theirs = results.get((side.name, row.key))
        cells += [_spread(theirs), f"x{_figure(median(theirs) / median(own))}" if own and theirs else _NONE]
    if row.target_us is None:
        return [*cells, _NONE, ""]
    met = own is not None and median(own) <= row.target_us
    return [*cells, f"≤ {_figure(row.target_us)}", "met" if met else "MISSED"]


def _spread(rounds_us: list[float] | None) -> str:
    if not rounds_us:
        return _NONE
    lower, _, upper = quantiles(rounds_us, n=4, method="inclusive") if len(rounds_us) > 1 else rounds_us * 3
    return f"{_figure(median(rounds_us))} [{_figure(lower)}-{_figure(upper)}]"


def _figure(value: float) -> str:
    """Three digits that say something; thousands with a comma."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _aligned(rows: list[list[str]]) -> Iterable[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        padded[0] = row[0].ljust(widths[0])
        yield "  ".join(padded).rstrip()
