"""Take long code blocks and tables out of an answer, so that they become files of their own."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

from connector.formatting.content import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

# Longer ones would fill several screens.
_MOST_LINES, _MOST_ROWS = 60, 50
MOST_PARTS = 9
# Parsing takes longer with each line.
_MOST_CHARS = 1_000_000
_ENDINGS = {
    "bash": "sh",
    "shell": "sh",
    "zsh": "sh",
    "javascript": "js",
    "typescript": "ts",
    "python": "py",
    "rust": "rs",
    "ruby": "rb",
    "yaml": "yml",
    "markdown": "md",
    "kotlin": "kt",
    "patch": "diff",
    "text": "txt",
    "": "txt",
}
_ENDING = re.compile(r"[a-z0-9]{1,8}")
_parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 4}).enable("table")
_parser.core.ruler.disable("inline")


class LongPart(NamedTuple):
    """A part that becomes a file; `kind` is the beginning and the ending of its name, such as `code.py`."""

    kind: str
    content: str


def without_long_parts(markdown: str) -> tuple[str, tuple[LongPart, ...]]:
    """Return a text with a line in place of each long code block and table, and these parts, nine at most."""
    if markdown.count("\n") < min(_MOST_LINES, _MOST_ROWS) or len(markdown) > _MOST_CHARS:
        return markdown, ()
    lines, parts = markdown.split("\n"), list[LongPart]()
    tokens = _parser.parse(markdown)
    shown, at = list[str](), 0
    for place, token in enumerate(tokens):
        part = _long_part(tokens, place) if not token.level and len(parts) < MOST_PARTS else None
        if part is None or token.map is None:
            continue
        parts.append(part)
        count = part.content.rstrip("\n").count("\n") + 1
        size = counted(count - 1, "row") if part.kind == "table.csv" else counted(count, "line")
        shown += [*lines[at : token.map[0]], f"📎 File {len(parts)} below: `{part.kind}`, {size}."]
        at = token.map[1]
    return "\n".join([*shown, *lines[at:]]), tuple(parts)


def _long_part(tokens: Sequence[Token], place: int) -> LongPart | None:
    token = tokens[place]
    if token.type in ("fence", "code_block") and token.content.count("\n") > _MOST_LINES:
        word = (token.info.split() or [""])[0].lower()
        ending = _ENDINGS.get(word, word)
        return LongPart(f"code.{ending if _ENDING.fullmatch(ending) else 'txt'}", token.content)
    if token.type == "table_open" and token.map is not None and token.map[1] - token.map[0] > _MOST_ROWS + 2:
        return LongPart("table.csv", _csv(tokens, place))
    return None


def _csv(tokens: Sequence[Token], place: int) -> str:
    out = io.StringIO()
    writer, row = csv.writer(out, lineterminator="\n"), list[str]()
    for token in tokens[place:]:
        if token.type == "inline":
            row.append(token.content)
        elif token.type == "tr_close":
            writer.writerow(row)
            row = []
        elif token.type == "table_close":
            break
    return out.getvalue()
