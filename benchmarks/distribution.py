"""Distributions of times: as a table, and as a plot of cumulative shares."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, log10
from typing import TYPE_CHECKING

from benchmarks.picture import OTHERS, OURS, TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHARES = (0.5, 0.9, 0.99, 1.0)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 860, 340, 60, 40, 40, 20
_FROM_S, _TO_S = 0.01, 100.0
_DASHES = ("none", "7 4")


@dataclass(frozen=True)
class Distribution:
    """Times, in seconds."""

    times_s: Sequence[float]

    def at(self, share: float) -> float:
        """Return the quantile of a share, by nearest rank; 0 without times."""
        ordered = sorted(self.times_s)
        return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0

    def within(self, time_s: float) -> float:
        """Return the share of times up to a time."""
        return sum(each <= time_s for each in self.times_s) / max(len(self.times_s), 1)


def tabled(rows: Mapping[str, Distribution]) -> str:
    """Return a Markdown table of quantiles, in seconds."""
    head = "| s | count | p50 | p90 | p99 | max |\n|---|--:|--:|--:|--:|--:|"
    lines = [
        f"| {name} | {len(each.times_s)} | {' | '.join(f'{each.at(share):.2f}' for share in _SHARES)} |"
        for name, each in rows.items()
    ]
    return "\n".join([head, *lines])


def drawn(title: str, rows: Mapping[str, Distribution]) -> str:
    """Return an SVG with a cumulative curve per row. The first half of the rows is ours."""
    names = list(rows)
    height = _HEIGHT + 22 * len(names)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        _text(_LEFT, 20, f"{title}: share within so many seconds", "start"),
        *_grid(),
    ]
    for number, name in enumerate(names):
        colour = OURS if number < len(names) / 2 else OTHERS
        style = f'fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{_DASHES[number % 2]}"'
        lines.append(f'<path d="{_curve(rows[name])}" {style}/>')
        y = _HEIGHT + 8 + 22 * number
        lines.append(f'<path d="M{_LEFT} {y}h40" {style}/>')
        lines.append(_text(_LEFT + 50, y + 5, name, "start"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _grid() -> Iterator[str]:
    for power in range(int(log10(_FROM_S)), int(log10(_TO_S)) + 1):
        x = _x(10.0**power)
        yield f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="{TEXT}" opacity="0.35"/>'
        yield _text(x, _HEIGHT - _BOTTOM + 20, f"{10.0**power:g}", "middle")
    for share in (0.0, 0.5, 0.9, 1.0):
        y = _y(share)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="{TEXT}" opacity="0.35"/>'
        yield _text(_LEFT - 8, y + 5, f"{share:.0%}", "end")


def _curve(distribution: Distribution) -> str:
    steps = 200
    width = log10(_TO_S) - log10(_FROM_S)
    times_s = [10 ** (log10(_FROM_S) + width * step / steps) for step in range(steps + 1)]
    points = [f"{_x(time_s):.1f} {_y(distribution.within(time_s)):.1f}" for time_s in times_s]
    return "M" + "L".join(points)


def _x(time_s: float) -> float:
    share = (log10(time_s) - log10(_FROM_S)) / (log10(_TO_S) - log10(_FROM_S))
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="13" fill="{TEXT}">{escape(text)}</text>'
