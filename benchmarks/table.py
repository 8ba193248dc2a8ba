"""Tables of results, for a terminal or in Markdown."""

from __future__ import annotations

import os
import platform
import textwrap
from importlib.metadata import version
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.harness import Benchmark, Effort, Results, Row, Side

    Grid = list[list[str]]

_NONE = "-"


def rendered(benchmark: Benchmark, results: Results, effort: Effort) -> str:
    """Return the table of one benchmark for a terminal, with a legend."""
    paragraphs = [textwrap.fill(text, 119, break_on_hyphens=False) for text in remarks(benchmark)]
    title = f"{benchmark.title} ({circumstances(effort)})"
    return "\n".join([title, "", *_aligned(grid(benchmark, results)), "", *paragraphs])


def markdown(benchmark: Benchmark, results: Results) -> str:
    """Return the Markdown table of one benchmark, with its heading and notes."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in grid(benchmark, results))
    columns = len(grid(benchmark, results)[0]) - 1
    table = [head, f"|---|{'--:|' * columns}", *body]
    return "\n\n".join([f"## {benchmark.title}", "\n".join(table), *remarks(benchmark)]) + "\n"


def circumstances(effort: Effort) -> str:
    return (
        f"{platform.python_implementation()} {platform.python_version()}, uvloop {version('uvloop')}, "
        f"{os.cpu_count()} cores; {effort.processes} x {effort.rounds} rounds of {effort.round_s * 1000:g} ms"
    )


def remarks(benchmark: Benchmark) -> Iterable[str]:
    """Return the legend of the table."""
    compared = f" x: ratio to {benchmark.base_name}." if len(_there(benchmark)) > 1 else ""
    yield f"Median of the rounds [quartiles]; the sides alternate.{compared}"
    for side in benchmark.sides:
        if side.version is None:
            yield f"{side.name} is not installed; to compare: {side.install}"
    yield from benchmark.notes


def grid(benchmark: Benchmark, results: Results) -> Grid:
    """Return all cells, the head first. The longer of rows and sides runs downwards."""
    there = _there(benchmark)
    if len(there) > len(benchmark.rows):
        return _sides_down(benchmark, there, results)
    return _rows_down(benchmark, there, results)


def _there(benchmark: Benchmark) -> list[Side]:
    return [side for side in benchmark.sides if side.version is not None]


def _rows_down(benchmark: Benchmark, sides: list[Side], results: Results) -> Grid:
    head = ["", *(side.label for side in sides), "target"]
    body = [
        [f"{row.title}, {row.unit}", *(_cell(benchmark, row, side, results) for side in sides)]
        for row in benchmark.rows
    ]
    return [
        head,
        *([*cells, _target(benchmark, row, results)] for cells, row in zip(body, benchmark.rows, strict=True)),
    ]


def _sides_down(benchmark: Benchmark, sides: list[Side], results: Results) -> Grid:
    head = ["", *(f"{row.title}, {row.unit}" for row in benchmark.rows)]
    body = [[side.label, *(_cell(benchmark, row, side, results) for row in benchmark.rows)] for side in sides]
    return [head, *body, ["target", *(_target(benchmark, row, results) for row in benchmark.rows)]]


def _cell(benchmark: Benchmark, row: Row, side: Side, results: Results) -> str:
    costs = results.get((side.name, row.key))
    if not costs:
        return _NONE
    ratio = _ratio(benchmark, row, side, results)
    return _spread(costs) if ratio is None or side.name == benchmark.base_name else f"{_spread(costs)} x{figure(ratio)}"


def _ratio(benchmark: Benchmark, row: Row, side: Side, results: Results) -> float | None:
    """Return the ratio to the base; `None` if the base was not measured, is zero, or the row is itself a ratio."""
    base = results.get((benchmark.base_name, row.key))
    is_comparable = base and median(base) and row.of is None
    return median(results[side.name, row.key]) / median(base) if base and is_comparable else None


def _target(benchmark: Benchmark, row: Row, results: Results) -> str:
    """Return the targets of our side, and whether they are met."""
    costs = results.get((benchmark.ours.name, row.key))
    wanted, met = [], bool(costs)
    if row.target is not None:
        wanted.append(f"≤ {figure(row.target)}")
        met = met and median(costs or ()) <= row.target
    if row.target_ratio is not None:
        wanted.append(f"≤ x{figure(row.target_ratio)}")
        ratio = _ratio(benchmark, row, benchmark.ours, results) if costs else None
        met = met and ratio is not None and ratio <= row.target_ratio
    return f"{', '.join(wanted)}: {'met' if met else 'MISSED'}" if wanted else _NONE


def _spread(costs: list[float]) -> str:
    if len(costs) == 1:
        return figure(costs[0])
    lower, _, upper = quantiles(costs, n=4, method="inclusive")
    return f"{figure(median(costs))} [{figure(lower)}-{figure(upper)}]"


def figure(value: float) -> str:
    """Format with three significant digits and thousands separators."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _aligned(rows: Grid) -> Iterable[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        padded[0] = row[0].ljust(widths[0])
        yield "  ".join(padded).rstrip()
