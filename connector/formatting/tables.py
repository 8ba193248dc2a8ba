"""Convert tables: to aligned columns if they are narrow enough, else to one list per row."""

from __future__ import annotations

import unicodedata
from itertools import zip_longest
from typing import TYPE_CHECKING

from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_block.table import table as table_rule

from connector.formatting.inline import BOLD, escape, inline, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode

# Columns of a code block that Slack shows without wrapping.
_WIDEST = 80
_GAP = "  "
# The parser pads short rows, so a few characters can create many cells. Once the tables of a text exceed this number,
# the remaining ones are plain text.
_MOST_CELLS = 3_000
_CELLS = "cells"


class _Cell:
    """A cell of a table: its inline nodes, and their text without markup."""

    def __init__(self, node: SyntaxTreeNode) -> None:
        self.inside: Sequence[SyntaxTreeNode] = node.children[0].children
        self.text = " ".join(words(self.inside).split())
        self.width = sum(_columns(character) for character in self.text)
        self.is_linked = any(each.type in ("link", "image") for each in node.walk())
        self._align = str(node.attrs.get("style", "")).removeprefix("text-align:")

    def padded(self, columns: int) -> str:
        room = columns - self.width
        before = {"right": room, "center": room // 2}.get(self._align, 0)
        return f"{' ' * before}{self.text}{' ' * (room - before)}"


def whole_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Extend the parser's rule for tables: cells beyond the last column, which it drops, go into the last column."""
    first = len(state.tokens)
    if not table_rule(state, start, end, silent=True):
        return False
    cells = state.env.get(_CELLS, 0) + _cells_from(state, start, end)
    if silent or cells > _MOST_CELLS:
        return bool(cells <= _MOST_CELLS)
    state.env[_CELLS] = cells
    table_rule(state, start, end, silent=False)
    line = columns = 0
    last: Token | None = None
    for token in state.tokens[first:]:
        if token.type == "tr_open" and token.map:
            line, columns = token.map[0], 0
        elif token.type == "inline":
            last, columns = token, columns + 1
        elif token.type == "tr_close" and last is not None:
            last.content = " | ".join([last.content, *_cells(getLine(state, line))[columns:]])
    return True


def _cells_from(state: StateBlock, start: int, end: int) -> int:
    """Return an upper bound of the cells of the table that begins in this line; each row is padded to the header."""
    row = next((row for row in range(start, end) if state.isEmpty(row)), end)
    return (row - start) * (getLine(state, start).count("|") + 1)


def _cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in escapedSplit(line.strip())]
    return cells[not cells[0] : len(cells) - (len(cells) > 1 and not cells[-1])]


def table(node: SyntaxTreeNode) -> tuple[str, bool]:
    """Return a table for Slack, and whether it must be shown as a code block.

    Links do not work in code blocks: a table with links becomes lists, like a table that is too wide.
    """
    rows = [[_Cell(cell) for cell in row.children] for part in node.children for row in part.children]
    widths = [max(cell.width for cell in column if cell) for column in zip_longest(*rows)]
    is_wide = sum(widths) + len(_GAP) * (len(widths) - 1) > _WIDEST
    if is_wide or any(cell.is_linked for row in rows for cell in row):
        return _records(rows), False
    lines = [_GAP.join(cell.padded(columns) for cell, columns in zip(row, widths, strict=False)) for row in rows]
    lines.insert(1, _GAP.join("-" * columns for columns in widths))
    return escape("\n".join(line.rstrip() for line in lines)), True


def _columns(character: str) -> int:
    """Return the number of columns of a character in a monospaced font."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _records(rows: list[list[_Cell]]) -> str:
    """Write each row as a paragraph that labels its cells with the column headings."""
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
