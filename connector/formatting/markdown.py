"""Convert a model's Markdown to Slack's markup.

A table becomes aligned columns if they are narrow enough, else one list per row.
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_block.table import table as table_rule
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from connector.formatting.inline import (
    BOLD,
    NO_SPACE,
    definition,
    escape,
    hide_used_definitions,
    inline,
    sources,
    whole,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore

FENCE = "```"
_RULE = "──────────"
_BULLETS = "•◦▪"
_INDENT = "    "
_TASK = re.compile(r"\[([ xX])\][ \t]+(?=\S)")
_DONE = {" ": "☐", "x": "☑"}
# At the start of a line `>` begins a quote, and `>>>` quotes the rest of the message.
_WOULD_QUOTE = re.compile(r"^&gt;", re.MULTILINE)
# The parser drops text that is nested deeper than this; a list counts as two levels. Each level of quotes adds one pass
# over its content.
_DEEPEST = 20
# The parser scans from each opening bracket to its closing one, or to the end of the paragraph. This total number of
# characters takes a fifth of a second.
_MOST_BRACKETED_CHARS = 250_000
_BRACKETS = re.compile(r"\\.|\[|\]|\n[ \t]*\n", re.DOTALL)
# This many characters of possible markup take about 50 ms. Code blocks do not count.
_MOST_SIGNS = 3_000
_SIGN = re.compile(r"[*_~`<&\[\]]")

# Columns of a code block that Slack shows without wrapping.
_WIDEST = 80
_GAP = "  "
# The parser pads short rows, so a few characters can create many cells. Once the tables of a text exceed this number,
# the remaining ones are plain text.
_MOST_CELLS = 3_000
_CELLS = "cells"
# Formulas, which Slack cannot typeset: `$$...$$` and `\[...\]`, then `\(...\)` and `$...$`; no amounts such as $5.
_MATH = re.compile(
    r"\$\$(?P<display>[^$]{1,1000})\$\$"
    r"|(?:^|(?<=\n))\\\[(?P<bracketed>[^\\]{0,1000}(?:\\[^\]][^\\]{0,1000}){0,50})\\\](?=\n|\Z)"
    r"|\\\((?P<inline>[^\\\n]{0,500}(?:\\[^)\n][^\\\n]{0,500}){0,50})\\\)"
    r"|(?<![\w$])\$(?P<dollars>(?![\s\d])(?=\w\$|[^$\n]*[\\^_={}+*/<>|])[^$\n]{0,300}(?<![\s\\]))\$(?![\w$])"
)


def is_wide(character: str) -> bool:
    """Return whether a character is as wide as two, such as Chinese, Japanese and Korean ones."""
    return unicodedata.east_asian_width(character) in ("W", "F")


class _InlineState(StateInline):
    """Lets marks begin and end next to Chinese, Japanese and Korean characters, which are written without spaces.

    CommonMark has no end of bold text between a punctuation mark and a letter, as in `**注意。**请`.
    """

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803 - the parser's names
        found = super().scanDelims(start, canSplitWord)
        end = start + found.length
        before = self.src[start - 1] if start else " "
        after = self.src[end] if end < self.posMax else " "
        # A single `*` is often no mark: `*.log和*.tmp`.
        if found.length == 1 or self.src[start] == "_" or not (is_wide(before) or is_wide(after)):
            return found
        return Scanned(not after.isspace(), not before.isspace(), found.length)


def _parse_inline(state: StateCore) -> None:
    """Parse the content of blocks. Blocks after the first `_MOST_SIGNS` signs, or nested too deeply, become text."""
    signs = 0
    for token in state.tokens:
        if token.type != "inline":
            continue
        signs += len(_SIGN.findall(token.content))
        token.children = []
        if signs <= _MOST_SIGNS:
            within = _InlineState(token.content, state.md, state.env, token.children)
            state.md.inline.tokenize(within)
            for rule in state.md.inline.ruler2.getRules(""):
                rule(within)
        if signs > _MOST_SIGNS or any(child.level > _DEEPEST for child in token.children):
            token.children = [Token("text", "", 0, content=token.content)]


def _math(state: StateInline, silent: bool) -> bool:
    """Parse a formula, so that its signs are no markup."""
    if state.src[state.pos] not in "$\\" or (found := _MATH.match(state.src, state.pos)) is None:
        return False
    if not silent:
        is_display = found["display"] or found["bracketed"]
        state.push("math", "", 0).content = (is_display or found["inline"] or found["dollars"] or "").strip()
        state.tokens[-1].info = "display" if is_display else ""
    state.pos = found.end()
    return True


def _whole_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Extend the parser's rule for tables: cells beyond the last column, which it drops, go into the last column."""
    first = len(state.tokens)
    if not table_rule(state, start, end, silent=True):
        return False
    row = next((row for row in range(start, end) if state.isEmpty(row)), end)
    # An upper bound: each row is padded to the header.
    cells = state.env.get(_CELLS, 0) + (row - start) * (getLine(state, start).count("|") + 1)
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
            last.content = " | ".join([last.content, *cells_of(getLine(state, line))[columns:]])
    return True


def cells_of(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    cells = [cell.strip() for cell in escapedSplit(line.strip())]
    return cells[not cells[0] : len(cells) - (len(cells) > 1 and not cells[-1])]


_parser = MarkdownIt(
    "commonmark", {"html": False, "maxNesting": _DEEPEST, "inline_definitions": True, "store_labels": True}
).enable(["strikethrough", "table"])
_parser.core.ruler.at("inline", _parse_inline)
_parser.inline.ruler.before("escape", "math", _math)
_parser.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})


def markdown_to_slack(markdown: str) -> str:
    """Return Slack's markup for a Markdown text.

    Control sequences are escaped, so that a model cannot mention users or notify a channel. A text that is nested too
    deeply, or has too much bracketed text, is shown as written.
    """
    markdown = whole(markdown)
    with suppress(RecursionError):
        if (root := parsed(markdown)) is not None:
            blocks = _blocks(root.children, _TOP)
            return "".join(f"\n{block.text}" if block.follows else f"\n\n{block.text}" for block in blocks).strip()
    return _WOULD_QUOTE.sub(f"{NO_SPACE}&gt;", _without_fences(escape(markdown))).strip()


def parsed(markdown: str) -> SyntaxTreeNode | None:
    """Return the syntax tree of a Markdown text; `None`: it is nested too deeply, or has too much bracketed text.

    Raises:
        RecursionError: it is nested too deeply for the parser.
    """
    if _bracketed_chars(markdown) > _MOST_BRACKETED_CHARS:
        return None
    tokens = _parser.parse(markdown)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        return None
    root = SyntaxTreeNode(tokens)
    if any(token.type == "definition" for token in tokens):
        hide_used_definitions(root)
    return root


def last_block(markdown: str) -> int:
    """Return where the last block of a text begins that is in no list and no quote, in characters."""
    tokens: list[Token] = []
    _parser.block.parse(markdown, _parser, {}, tokens)
    lines = [token.map[0] for token in tokens if not token.level and token.map]
    return sum(len(line) + 1 for line in markdown.split("\n")[: lines[-1]]) if lines else 0


def _bracketed_chars(markdown: str) -> int:
    """Sum the characters between each opening bracket and its closing one or the end of its paragraph."""
    chars = 0
    opened: list[int] = []
    for found in _BRACKETS.finditer(markdown):
        match found[0][0]:
            case "[":
                opened.append(found.start())
            case "]" if opened:
                chars += found.start() - opened.pop()
            case "\n":
                chars += found.start() * len(opened) - sum(opened)
                opened.clear()
    return chars + len(markdown) * len(opened) - sum(opened)


@dataclass(frozen=True, slots=True)
class _Place:
    """The context of a block: the number of lists around it, and whether it is inside a quote."""

    lists: int = 0
    is_quoted: bool = False


_TOP = _Place()


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of output lines.

    Args:
        is_code: its lines get no prefix.
        follows: no blank line separates it from the block before it.
    """

    text: str
    is_code: bool = False
    follows: bool = False


def _blocks(nodes: Sequence[SyntaxTreeNode], place: _Place) -> list[_Block]:
    out: list[_Block] = []
    before = ""
    for node in nodes:
        if node.hidden and node.type == "definition":
            continue
        blocks = _block(node, place)
        if node.type == before == "definition":
            blocks = [replace(block, follows=True) for block in blocks]
        out += blocks
        before = node.type
    out.append(_Block(sources(nodes)))
    return [block for block in out if block.text]


def _block(node: SyntaxTreeNode, place: _Place) -> list[_Block]:  # noqa: PLR0911 - one for each kind
    match node.type:
        case "heading":
            return [_Block(_text(node.children[0], place, (BOLD,)))]
        case "bullet_list" | "ordered_list":
            return _list(node, place)
        case "blockquote":
            return _quote(_blocks(node.children, replace(place, is_quoted=True)), place)
        case "fence" | "code_block":
            # One word after a fence is the language. Several words, or a word before an empty block, are text.
            is_language = len(node.info.split()) < 2 and node.content.strip()
            return [_code(escape(node.content if is_language else f"{node.info.strip()}\n{node.content}"))]
        case "table":
            text, is_code = _table(node)
            return [_code(text) if is_code else _Block(_without_fences(text))]
        case "definition":
            return [_Block(_without_fences(definition(node)))]
        case "hr":
            return [_Block(_RULE)]
        case "inline" if formula := formula_of(node):
            return [_code(escape(formula))]
        case "inline":
            return [_Block(_text(node, place))]
        case _:
            return _blocks(node.children, place)


def formula_of(node: SyntaxTreeNode) -> str:
    """Return the formula that is all of a paragraph; blank: there is none."""
    (first, *others) = node.children or (node,)
    return first.content if first.type == "math" and first.info == "display" and not others else ""


def _text(node: SyntaxTreeNode, place: _Place, marks: tuple[str, ...] = ()) -> str:
    text = _without_fences(inline(node.children, marks))
    return _WOULD_QUOTE.sub(f"{NO_SPACE}&gt;", text) if place == _TOP else text


def _code(text: str) -> _Block:
    code = _without_fences(text).rstrip()
    return _Block(f"{FENCE}\n{code}\n{FENCE}" if code.strip() else "", is_code=True)


def _without_fences(text: str) -> str:
    """Separate backticks that Slack would read as the border of a code block."""
    return re.sub(r"`{3,}", lambda run: " ".join(run[0]), text)


def _quote(blocks: Sequence[_Block], place: _Place) -> list[_Block]:
    """Prefix the lines of a quote. Slack has one quote level: nested quotes show `>`; code goes between quotes."""
    sign = "> " if place == _TOP else "&gt; "
    out: list[_Block] = []
    for block in blocks:
        if block.is_code:
            out.append(replace(block, follows=bool(out)))
            continue
        text = "\n".join(f"{sign}{line}" for line in block.text.split("\n"))
        if out and not out[-1].is_code and not block.follows:
            text = f"{sign}\n{text}"
        out.append(_Block(text, follows=bool(out)))
    return out


def _list(node: SyntaxTreeNode, place: _Place) -> list[_Block]:
    """Write each item on its own lines. Code in an item is not indented, so that its content is unchanged."""
    number = int(node.attrs.get("start", 1))
    bullet = _BULLETS[min(place.lists, len(_BULLETS) - 1)]
    within = replace(place, lists=place.lists + 1)
    out: list[_Block] = []
    for item in node.children:
        mark = f"{number}." if node.type == "ordered_list" else bullet
        if box := box_of(item):
            mark = _DONE[box] if mark == bullet else f"{mark} {_DONE[box]}"
        out += _item(mark, _blocks(item.children, within), follows=bool(out))
        number += 1
    return out


def _item(mark: str, blocks: list[_Block], *, follows: bool) -> Iterator[_Block]:
    if not blocks or blocks[0].is_code:
        yield _Block(mark, follows=follows)
        mark, follows = "", True
    for block in blocks:
        if block.is_code:
            yield replace(block, follows=True)
            continue
        first, *others = block.text.split("\n")
        lines = [f"{mark} {first}" if mark else f"{_INDENT}{first}", *(f"{_INDENT}{line}" for line in others)]
        yield _Block("\n".join(lines), follows=follows)
        mark, follows = "", True


def box_of(item: SyntaxTreeNode, *, strip: bool = True) -> str:
    """Return the sign in the check box of a task, and remove the box from its text; blank: the item is no task."""
    first = next(item.walk(include_self=False), None)
    while first is not None and first.type in ("paragraph", "inline"):
        first = next(iter(first.children), None)
    if first is None or first.type != "text" or first.token is None or (box := _TASK.match(first.content)) is None:
        return ""
    if strip:
        first.token.content = first.content[box.end() :]
    return box[1].lower()


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


def _table(node: SyntaxTreeNode) -> tuple[str, bool]:
    """Return a table for Slack, and whether it must be shown as a code block.

    Links do not work in code blocks: a table with links becomes lists, like a table that is too wide.
    """
    rows = [[_Cell(cell) for cell in row.children] for part in node.children for row in part.children]
    widths = [max(cell.width for cell in column if cell) for column in zip_longest(*rows)]
    is_wide = sum(widths) + len(_GAP) * (len(widths) - 1) > _WIDEST
    if is_wide or any(cell.is_linked for row in rows for cell in row):
        headings, *records = rows
        return "\n\n".join(_record(headings, cells) for cells in records) or _record(headings, []), False
    lines = [_GAP.join(cell.padded(columns) for cell, columns in zip(row, widths, strict=False)) for row in rows]
    lines.insert(1, _GAP.join("-" * columns for columns in widths))
    return escape("\n".join(line.rstrip() for line in lines)), True


def _columns(character: str) -> int:
    """Return the number of columns of a character in a monospaced font."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if is_wide(character) else 1


def _record(headings: list[_Cell], cells: list[_Cell]) -> str:
    """Write a row as a paragraph that labels its cells with the column headings."""
    lines: list[str] = []
    for heading, cell in zip_longest(headings, cells):
        marks = () if lines else (BOLD,)
        parts = [inline(each.inside, marks) for each in (heading, cell) if each]
        line = ": ".join(part for part in parts if part)
        lines.append(line if marks or not line else f"• {line}")
    return "\n".join(line for line in lines if line)
