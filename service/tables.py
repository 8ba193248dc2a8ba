"""Text for a terminal: tables, times and numbers."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.export.text import local

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = "  "
# Minimum width of the last column.
_LEAST_CHARS = 12
# Assumed terminal size if there is no terminal.
_SIZE = (100, 24)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> str:
    """Format a table no wider than the terminal by cutting the last column.

    `numbers` names the columns to align right.
    """
    lines = [list(head), *([_printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rest = max(shutil.get_terminal_size(_SIZE).columns - sum(widths[:-1]) - len(_GAP) * (len(head) - 1), _LEAST_CHARS)
    shown = []
    for line in lines:
        cells = [
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(head[:-1], line[:-1], widths[:-1], strict=True)
        ]
        shown.append(_GAP.join([*cells, _cut(line[-1], rest)]).rstrip())
    return "\n".join(shown)


def moment(ts: float) -> str:
    """Format seconds since the epoch as local time; a dash if the value is out of range."""
    then, now = local(ts), datetime.now(UTC).astimezone()
    if then is None:
        return "-"
    return f"{then:%b %d %H:%M}" if then.year == now.year else f"{then:%Y-%m-%d}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun: `1 state`, `1,200 states`."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def _printable(text: str) -> str:
    """Put a text on one line and remove control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
