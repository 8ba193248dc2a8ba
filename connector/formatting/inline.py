"""Convert inline Markdown: emphasis, code, links."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.formatting.links import escape, link, with_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.tree import SyntaxTreeNode

    Nodes = Sequence[SyntaxTreeNode]

BOLD = "*"
# Zero-width space. Slack recognizes markup only at word boundaries; this creates one inside a word.
NO_SPACE = "\u200b"
_CODE = "`"
_MARKS = {"strong": BOLD, "em": "_", "s": "~"}
_BEFORE_A_MARK = frozenset("([{\"'-,.:!?=/—")
_AFTER_A_MARK = frozenset(")]}\"'-,.:;!?=/—…")
# Slack cannot escape a backtick in code: this look-alike replaces it.
_LIKE_A_BACKTICK = "\u02cb"

Marks = tuple[str, ...]


def inline(nodes: Nodes, marks: Marks = ()) -> str:
    """Return Slack's markup for the inline nodes of a block, with `marks` around all of it."""
    line = _Line()
    for text, around in _runs(nodes, marks):
        line.add(text, around)
    return line.ended()


def words(nodes: Nodes) -> str:
    """Return the text of inline nodes without markup, not escaped."""
    return "".join(
        node.content or (" " if node.type in ("softbreak", "hardbreak") else words(node.children)) for node in nodes
    )


def _runs(nodes: Nodes, marks: Marks) -> Iterator[tuple[str, Marks]]:
    """Yield the escaped texts, each with the marks around it."""
    for node in nodes:
        match node.type:
            case "softbreak" | "hardbreak":
                yield "\n", ()
            case "code_inline":
                yield escape(node.content.replace(_CODE, _LIKE_A_BACKTICK)), (*marks, _CODE)
            case "image":
                yield link(str(node.attrs.get("src", "")), words(node.children)), marks
            case "link":
                yield _linked(node, marks)
            case kind if node.is_nested:
                yield from _runs(node.children, _with(marks, _MARKS.get(kind, "")))
            case _:
                yield with_links(node.content), marks


def _linked(node: SyntaxTreeNode, marks: Marks) -> tuple[str, Marks]:
    """Return a link and its marks. Slack shows no marks in a label: marks around the whole label go around the link."""
    inside: Nodes = (node,)
    while len(inside) == 1 and inside[0].is_nested:
        marks = _with(marks, _MARKS.get(inside[0].type, ""))
        inside = [child for child in inside[0].children if child.content or child.type != "text"]
    return link(str(node.attrs.get("href", "")), words(inside)), marks


def _with(marks: Marks, mark: str) -> Marks:
    return (*marks, mark) if mark and mark not in marks else marks


@dataclass(slots=True)
class _Line:
    """Places marks where Slack recognizes them: not next to spaces, within one line, and at word boundaries."""

    _out: list[str] = field(default_factory=list)
    _open: Marks = ()
    _space: str = ""
    _has_closed: bool = False

    def add(self, text: str, marks: Marks) -> None:
        core = text.strip()
        before, _, after = text.partition(core) if core else (text, "", "")
        self._space += before
        if core:
            self._change(marks)
            if self._has_closed and core[0] not in _AFTER_A_MARK:
                self._out.append(NO_SPACE)
            self._out.append(core)
            self._has_closed = False
        self._space += after

    def ended(self) -> str:
        self._change(())
        return "".join(self._out)

    def _change(self, marks: Marks) -> None:
        """Close the marks that end here, write the pending space, open the marks that begin here."""
        stay = 0 if "\n" in self._space else _common(self._open, marks)
        closed = "".join(reversed(self._open[stay:]))
        opened = "".join(marks[stay:])
        self._has_closed = (self._has_closed or bool(closed)) and not self._space
        is_inside = bool(self._open[:stay]) and self._out[-1] == self._open[stay - 1]
        self._out += [part for part in (closed, self._space) if part]
        if opened:
            last = self._out[-1][-1] if self._out else " "
            if not (last.isspace() or last in _BEFORE_A_MARK or is_inside):
                self._out.append(NO_SPACE)
            self._out += opened
            self._has_closed = False
        self._open, self._space = marks, ""


def _common(one: Marks, other: Marks) -> int:
    """Return the length of the common prefix."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
