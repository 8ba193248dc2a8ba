"""The form of user rows: each message names its author, and no text can produce a line of our own.

A person's message is `Ada Lovelace (U0ADA), with files a.md: first line`; its further lines are indented. So the text
never begins at the first column of a row. Only our own lines do: this header, the list items of a row, and the frames
below, which introduce rows that are not prompts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from orchestrator_interactive.kernel.models import sendable

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX = "[The user sent additional messages while you were working. Incorporate this into your current task:]"
NOTICE_PREFIX = "[This happened since your last answer:]"
LATE_PREFIX = "[Results of tool calls that were still at work:]"
SUMMARY_PREFIX = "[Summary of the earlier conversation:"
LEFT_OUT_PREFIX = "[To save space, "
REFUSED = "[What was said here is left out: it was refused.]"
GO_ON = "[Go on.]"
_FRAMES = (PREFIX, NOTICE_PREFIX, LATE_PREFIX, SUMMARY_PREFIX, LEFT_OUT_PREFIX, REFUSED, GO_ON, "<system-reminder>")

_NAME_CHARS = 80
_ID_CHARS = 64
# Allowed in addition to letters, marks and digits; no colon, comma or bracket, which separate the parts of a header.
_SIGNS_OF_NAMES = " .'\u2019-_·・"
# Letters that look like a colon, and invisible letters and marks.
_NOT_OF_NAMES = re.compile(
    "[\u02d0\ua4fd\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_NOT_OF_IDS = re.compile(r"[^A-Za-z0-9_.@-]")
_HEADER = re.compile(r"\s*\S[^\n]* \([A-Za-z0-9_.@-]+\)(?:, with files [^\n]*)?:")

_INVISIBLE = re.compile(
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]*"
)
# Cyrillic and Greek letters by the Latin ones that they look like, in lower case.
_LOOK_ALIKES = str.maketrans("авекмнорстухѕіјһԁӏαεικνορτυχ", "abekmhopctyxsijhdlaeiknoptyx")
_LOOKED_AT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a message. Several people may have the same name; each has an `id` of their own."""

    id: str
    name: str = ""


def message_text(text: str, author: Author | None = None, files: Sequence[str] = ()) -> str:
    """Write a message in the form in which a model reads it, with the names of the files that came along.

    Without an author and files it has no header, and a first line that looks like one is indented.
    """
    if author is None and not files:
        return indented(f"  {text}" if _HEADER.match(normalize("NFKC", text[:_LOOKED_AT_CHARS])) else text)
    author = author or Author("")
    name, author_id = plain_name(author.name) or "someone", _NOT_OF_IDS.sub("", author.id)[:_ID_CHARS] or "unknown"
    with_files = f", with files {', '.join(plain_name(each) or 'unnamed' for each in files)}" if files else ""
    return f"{name} ({author_id}){with_files}: {indented(text)}"


def plain_name(name: str) -> str:
    """Return a name on one line, without signs that separate, hide or reorder anything; blank: nothing is left."""
    seen = _NOT_OF_NAMES.sub(" ", normalize("NFKC", name[: 2 * _NAME_CHARS]))
    kept = "".join(sign if sign in _SIGNS_OF_NAMES or category(sign)[0] in "LMN" else " " for sign in seen)
    return " ".join(kept.split())[:_NAME_CHARS].strip(_SIGNS_OF_NAMES)


def indented(text: str) -> str:
    """Indent the further lines of a text. Every line break that `str.splitlines` knows counts."""
    return sendable("\n  ".join(text.splitlines()))


def listed(texts: Sequence[str]) -> str:
    """Write texts as the items of a list, one below the other."""
    return "\n".join(f"- {text}" for text in texts)


def without_frames(text: str) -> str:
    """Indent the lines of a text that look like one of our frames; the rest stays as it is.

    For texts that are rows of their own: prompts without an author, tool results, hook injections.
    """
    return "".join(f"  {line}" if _looks_like_a_frame(line) else line for line in text.splitlines(keepends=True))


def _looks_like_a_frame(line: str) -> bool:
    if line.startswith("  "):  # as text is in `message_text`
        return False
    begin = match.end() if (match := _INVISIBLE.match(line)) else 0
    if begin == len(line) or (category(line[begin]) not in ("Ps", "Pi") and line[begin] not in "<\uff1c"):
        return False
    return _letters(line[begin : begin + _LOOKED_AT_CHARS]).startswith(_FRAME_LETTERS)


def _letters(line: str) -> str:
    """Return the Latin letters and the digits of a line, without case, accents and look-alikes."""
    plain = normalize("NFKD", line).casefold().translate(_LOOK_ALIKES)
    return "".join(sign for sign in plain if sign.isascii() and sign.isalnum())


_FRAME_LETTERS = tuple(_letters(frame) for frame in _FRAMES)
