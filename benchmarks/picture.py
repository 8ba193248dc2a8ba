"""A bar chart in SVG. Its colours are readable on light and dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.table import figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness import Benchmark, Results, Row

WIDTH, LABELS, FIGURES = 860, 310, 70
TOP, BAR, GAP = 60, 13, 12
OURS, OTHERS, TEXT = "#2f81f7", "#8b949e", "#7d8590"
SHADES = ("1", "0.55")  # opacity of the bars of the first and of the second row


def drawn(benchmark: Benchmark, results: Results) -> str:
    """Return a chart with a bar for each side and pictured row, on a logarithmic scale."""
    rows = [row for row in benchmark.rows if row.key in benchmark.pictured]
    groups = [
        _Group(side.name, side.name.startswith(benchmark.ours.name), costs)
        for side in benchmark.sides
        if (costs := tuple(median(results.get((side.name, row.key), [0.0])) for row in rows)) and all(costs)
    ]
    axis = _Axis.around([cost for group in groups for cost in group.costs])
    height = TOP + len(groups) * (len(rows) * BAR + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif">',
        f"<title>{escape(benchmark.title)}</title>",
        *_legend(benchmark.title, rows),
        *_grid(axis, height),
        *(line for number, group in enumerate(groups) for line in _bars(number, group, axis)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Group:
    """Return the bars of one side."""

    label: str
    is_ours: bool
    costs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    """Convert costs to x coordinates on a logarithmic scale."""

    low: int
    high: int

    @classmethod
    def around(cls, costs: Sequence[float]) -> _Axis:
        low = floor(log10(min(costs)))
        return cls(low, max(ceil(log10(max(costs))), low + 1))

    def x(self, cost: float) -> float:
        share = (log10(cost) - self.low) / (self.high - self.low)
        return LABELS + share * (WIDTH - LABELS - FIGURES)


def _legend(title: str, rows: Sequence[Row]) -> Iterator[str]:
    yield _text(LABELS - 10, 19, title, "end")
    for number, (row, shade) in enumerate(zip(rows, SHADES, strict=False)):
        x = LABELS + number * 170
        yield _bar(x, 8, 14, OTHERS, shade)
        yield _text(x + 20, 19, f"{row.title}, {row.unit}", "start")


def _grid(axis: _Axis, height: int) -> Iterator[str]:
    for power in range(axis.low, axis.high + 1):
        x = axis.x(10.0**power)
        yield f'<path d="M{x:.1f} {TOP - 8}V{height - GAP}" stroke="{TEXT}" opacity="0.35"/>'
        yield _text(x, TOP - 13, f"{10.0**power:,g}", "middle")


def _bars(number: int, group: _Group, axis: _Axis) -> Iterator[str]:
    top = TOP + number * (len(group.costs) * BAR + GAP)
    yield _text(LABELS - 10, top + len(group.costs) * BAR / 2 + 5, group.label, "end")
    for place, (cost, shade) in enumerate(zip(group.costs, SHADES, strict=False)):
        y, end = top + place * BAR, axis.x(cost)
        yield _bar(LABELS, y, end - LABELS, OURS if group.is_ours else OTHERS, shade)
        yield _text(end + 6, y + BAR - 2, figure(cost), "start")


def _bar(x: float, y: float, width: float, colour: str, shade: str) -> str:
    size = f'width="{width:.1f}" height="{BAR - 1}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}" opacity="{shade}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="13" fill="{TEXT}">{escape(text)}</text>'
