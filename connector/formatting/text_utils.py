"""Texts on one line."""

from __future__ import annotations

import re

_VERBS = {
    "add": "Adding",
    "ask": "Asking",
    "call": "Calling",
    "check": "Checking",
    "create": "Creating",
    "delete": "Deleting",
    "edit": "Editing",
    "execute": "Running",
    "fetch": "Fetching",
    "find": "Finding",
    "get": "Getting",
    "list": "Listing",
    "open": "Opening",
    "query": "Querying",
    "read": "Reading",
    "run": "Running",
    "search": "Searching",
    "send": "Sending",
    "update": "Updating",
    "write": "Writing",
}
_LABEL_CHARS = 120
_BETWEEN_WORDS = re.compile(r"[\s_.:-]+|(?<=[a-z])(?=[A-Z])")


def one_line(text: str, most: int) -> str:
    """A text on one line, cut where it is longer than that many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def use_of(tool: str) -> str:
    """What people read of the use of a tool that does not say it itself: `read_file` is “Reading file”."""
    verb, *others = [word for word in _BETWEEN_WORDS.split(one_line(tool, _LABEL_CHARS)) if word] or ["a tool"]
    if verb.lower() in _VERBS and others:
        return " ".join([_VERBS[verb.lower()], *(word.lower() for word in others)])
    return " ".join(["Using", verb, *others])


def counted(count: int, one: str, many: str = "") -> str:
    """How many there are of something, in words."""
    return f"1 {one}" if count == 1 else f"{count} {many or f'{one}s'}"
