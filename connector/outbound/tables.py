"""Tables: in columns where they fit into a line of people's screens, else one list for each row."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from connector.outbound.inline import BOLD, inline, words
from connector.outbound.links import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

# What Slack's window shows of a code block without breaking its lines.
_WIDEST = 80
_GAP = "  "


@dataclass(frozen=True, slots=True)
class _Cell:
    inside: Sequence[Token]
    align: str

    @property
    def text(self) -> str:
        return " ".join(words(self.inside).split())

    @property
    def is_linked(self) -> bool:
        return any(token.type in ("link_open", "image") for token in self.inside)

    def padded(self, columns: int) -> str:
        room = columns - width(self.text)
        before = {"right": room, "center": room // 2}.get(self.align, 0)
        return f"{' ' * before}{self.text}{' ' * (room - before)}"


def table(tokens: Sequence[Token]) -> tuple[str, bool]:
    """A table for Slack, and whether that is code, to be shown with letters of one width.

    Links do not lead anywhere from there: a table that has some becomes lists, like one that is too wide.
    """
    rows = _rows(tokens)
    widths = [max(width(cell.text) for cell in column if cell) for column in zip_longest(*rows)]
    is_wide = sum(widths) + len(_GAP) * (len(widths) - 1) > _WIDEST
    if is_wide or any(cell.is_linked for row in rows for cell in row):
        return _records(rows), False
    lines = [_GAP.join(cell.padded(columns) for cell, columns in zip(row, widths, strict=False)) for row in rows]
    lines.insert(1, _GAP.join("-" * columns for columns in widths))
    return escape("\n".join(line.rstrip() for line in lines)), True


def width(text: str) -> int:
    """How many columns a text takes where all letters are of one width."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _rows(tokens: Sequence[Token]) -> list[list[_Cell]]:
    rows: list[list[_Cell]] = []
    align = ""
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            align = str(token.attrs.get("style", "")).removeprefix("text-align:")
        elif token.type == "inline":
            rows[-1].append(_Cell(token.children or [], align))
    return rows


def _records(rows: list[list[_Cell]]) -> str:
    """A paragraph for each row, which says what its cells are."""
    headings, *records = rows
    return "\n\n".join(_record(headings, cells) for cells in records) or _record(headings, [])


def _record(headings: list[_Cell], cells: list[_Cell]) -> str:
    lines: list[str] = []
    for heading, cell in zip_longest(headings, cells):
        marks = () if lines else (BOLD,)
        parts = [inline(each.inside, marks) for each in (heading, cell) if each]
        line = ": ".join(part for part in parts if part)
        lines.append(line if marks or not line else f"• {line}")
    return "\n".join(line for line in lines if line)
