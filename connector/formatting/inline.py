"""Convert inline Markdown: emphasis, code, links."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.formatting.links import escape, link, with_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it.token import Token

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


def inline(tokens: Sequence[Token], marks: Marks = ()) -> str:
    """Return Slack's markup for the inline tokens of a block, with `marks` around all of it."""
    line = _Line()
    for text, around in _runs(tokens, marks):
        line.add(text, around)
    return line.ended()


def words(tokens: Sequence[Token]) -> str:
    """Return the text of inline tokens without markup, not escaped."""
    return "".join(token.content or (" " if token.type.endswith("break") else "") for token in tokens)


def _runs(tokens: Sequence[Token], marks: Marks) -> Iterator[tuple[str, Marks]]:
    """Yield the escaped texts, each with the marks around it."""
    around = [marks]
    at = 0
    while at < len(tokens):
        token = tokens[at]
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind == "link":
            end = _end_of_link(tokens, at)
            yield _linked(str(token.attrs.get("href", "")), tokens[at + 1 : end], around[-1])
            at = end
        elif token.nesting > 0:
            around.append(_with(around[-1], _MARKS.get(kind, "")))
        elif token.nesting < 0:
            around.pop()
        else:
            yield _run(token, around[-1])
        at += 1


def _run(token: Token, marks: Marks) -> tuple[str, Marks]:
    match token.type:
        case "softbreak" | "hardbreak":
            return "\n", ()
        case "code_inline":
            return escape(token.content.replace(_CODE, _LIKE_A_BACKTICK)), (*marks, _CODE)
        case "image":
            return link(str(token.attrs.get("src", "")), words(token.children or [])), marks
        case _:
            return with_links(token.content), marks


def _end_of_link(tokens: Sequence[Token], at: int) -> int:
    """Return the index of the token that closes the link opened at `at`. A label may contain another link."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += tokens[end].nesting
        if depth == 0:
            return end
    return len(tokens)


def _linked(href: str, inside: Sequence[Token], marks: Marks) -> tuple[str, Marks]:
    """Return a link and its marks. Slack shows no marks in a label: marks around the whole label go around the link."""
    inside = [token for token in inside if token.content or token.type != "text"]
    while len(inside) > 1 and inside[0].nesting > 0 and _closes(inside):
        marks = _with(marks, _MARKS.get(inside[0].type.removesuffix("_open"), ""))
        inside = inside[1:-1]
    return link(href, words(inside)), marks


def _closes(inside: Sequence[Token]) -> bool:
    """Return whether the last token closes the first one."""
    depth = 0
    for token in inside[:-1]:
        depth += token.nesting
        if depth == 0:
            return False
    return depth + inside[-1].nesting == 0


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
