"""Take long code blocks and tables out of an answer, so that they become files of their own."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, NamedTuple

from connector.formatting.content import counted
from connector.formatting.markdown import cells_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# Longer ones would fill several screens.
_MOST_LINES, _MOST_ROWS = 60, 50
MOST_PARTS = 9
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^`]*)")
_DELIMITERS = re.compile(r" {0,3}\|?(?:[ \t]*:?-+:?[ \t]*\|)+(?:[ \t]*:?-+:?[ \t]*)?")
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


class LongPart(NamedTuple):
    """A part that becomes a file; `kind` is the beginning and the ending of its name, such as `code.py`."""

    kind: str
    content: str


def without_long_parts(markdown: str) -> tuple[str, tuple[LongPart, ...]]:
    """Return a text with a line in place of each long code block and table, and these parts, nine at most.

    Only blocks that are in no list and no quote count.
    """
    lines, shown, parts, at = markdown.split("\n"), list[str](), list[LongPart](), 0
    while at < len(lines):
        end, part = _block(lines, at)
        if part is None or len(parts) == MOST_PARTS:
            shown += lines[at:end]
        else:
            parts.append(part)
            count = part.content.rstrip("\n").count("\n") + 1
            size = counted(count - 1, "row") if part.kind == "table.csv" else counted(count, "line")
            shown.append(f"📎 File {len(parts)} below: `{part.kind}`, {size}.")
        at = end
    return "\n".join(shown), tuple(parts)


def _block(lines: Sequence[str], at: int) -> tuple[int, LongPart | None]:
    """Return the line after the block that begins here, and the part, if it is a long code block or table."""
    if opened := _FENCE.fullmatch(lines[at]):
        closes = (n for n in range(at + 1, len(lines)) if _closes(lines[n], opened[2]))
        last = next(closes, len(lines))
        word = (opened[3].split() or [""])[0].lower()
        ending = _ENDINGS.get(word, word)
        kind = f"code.{ending if _ENDING.fullmatch(ending) else 'txt'}"
        is_long = last - at - 1 > _MOST_LINES
        indentation = re.compile(f" {{0,{len(opened[1])}}}")  # of the fence, which is no part of the code
        content = "".join(f"{indentation.sub('', line, count=1)}\n" for line in lines[at + 1 : last])
        return min(last + 1, len(lines)), LongPart(kind, content) if is_long else None
    if "|" in lines[at] and at + 1 < len(lines) and _DELIMITERS.fullmatch(lines[at + 1]):
        end = next((n for n in range(at + 2, len(lines)) if "|" not in lines[n]), len(lines))
        is_long = end - at - 2 > _MOST_ROWS
        return end, LongPart("table.csv", _csv([lines[at], *lines[at + 2 : end]])) if is_long else None
    return at + 1, None


def _closes(line: str, fence: str) -> bool:
    sign = line.strip()
    return len(sign) >= len(fence) and not sign.strip(fence[0]) and not line.startswith("    ")


def _csv(rows: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(cells_of, rows))
    return out.getvalue()
