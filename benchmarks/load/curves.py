"""Curves of figures, below each other, in SVG. Their colours are readable on light and dark pages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from benchmarks.picture import OURS, TEXT
from benchmarks.table import figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 860, 170, 80, 35, 28


def drawn(title: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return an SVG with a curve for each title, through its points."""
    drawings = (_curve(name, points) for name, points in curves.items())
    placed = (f'<g transform="translate(0 {at * _HEIGHT})">{curve}</g>' for at, curve in enumerate(drawings))
    size = f"0 0 {_WIDTH} {_HEIGHT * len(curves)}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *placed, "</svg>"]) + "\n"


def _curve(title: str, points: Sequence[tuple[float, float]]) -> str:
    """Return a curve of values from zero as a part of an SVG."""
    most_x, most_y = (max(*each, 1e-9) * 1.1 for each in zip(*points, (0.0, 0.0), strict=True))
    width, height = _WIDTH - _LEFT, _HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> str:
        return f"{_LEFT + x / most_x * width:.1f} {_TOP + (1 - y / most_y) * height:.1f}"

    last_x, last_y = points[-1]
    style = f'font-size="13" fill="{TEXT}"'
    end_x, end_y = at(last_x, last_y).split()
    return (
        f'<text x="{_LEFT}" y="20" {style}>{escape(title)}</text>'
        f'<path d="M{at(0, most_y)}L{at(0, 0)}L{at(most_x, 0)}" fill="none" stroke="{TEXT}" opacity="0.35"/>'
        f'<path d="M{"L".join(at(*point) for point in points)}" fill="none" stroke="{OURS}" stroke-width="2"/>'
        f'<text x="8" y="{end_y}" {style}>{figure(last_y)}</text>'
        f'<text x="{end_x}" y="{_HEIGHT - 8}" text-anchor="end" {style}>{figure(last_x)}</text>'
    )
