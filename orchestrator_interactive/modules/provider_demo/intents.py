"""Detect the intent of a message by word rules."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_WAIT_S = 120.0
DEFAULT_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Introduce:
    pass


@dataclass(frozen=True, slots=True)
class Meet:
    """The user tells a name."""

    name: str


@dataclass(frozen=True, slots=True)
class AskName:
    pass


@dataclass(frozen=True, slots=True)
class Write:
    """`content` is `None` to write the last answer."""

    path: str
    content: str | None
    append: bool


@dataclass(frozen=True, slots=True)
class Search:
    query: str


@dataclass(frozen=True, slots=True)
class Read:
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Review:
    pass


@dataclass(frozen=True, slots=True)
class TodoIntent:
    """`items` is empty to show the list only."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    pass


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """The user wants the answer now."""


@dataclass(frozen=True, slots=True)
class Chat:
    pass


Intent = Introduce | Meet | AskName | Write | Search | Read | Review | TodoIntent | Wait | DemoAnswer | Chat

# Bounded, and matched at word starts only, so that long messages stay fast.
_PATH = r"(?<![\w./-])[./]{0,6}\w[\w./-]{0,200}\.(?:md|txt|csv|json|ya?ml|toml|py|js|html|rst|ini|cfg|log)\b"
_I = re.IGNORECASE
_POLITE = r"^(?:\W*(?:please|now|then|and|ok|okay|hey|hi|hello|can you|could you|would you)\b)*\W*"

_WHO = re.compile(r"\bwho are you\b|\bwhat are you\b|\bwhat can you do\b|^\W*help\b\W*(?:me)?\W*$", _I)
_GREETING = re.compile(r"^\W*(?:hello|hi|hey|good (?:morning|afternoon|evening)|help)\b", _I)
_MEET = re.compile(r"\b(?:my name(?:'s| is)|call me)\s+([^\W\d_][\w'-]*)", _I)
_ASK_NAME = re.compile(r"\bwhat(?:'s| is) my name\b|\bwho am i\b|\bremember my name\b", _I)
_WRITE_INTO = re.compile(
    r"\b(write|save|put|add|append|store)\b(.{0,1000}?)\b(?:in|into|to|as|under|called|named)\s+"
    rf"(?:(?:a|the|new|file|called)\s+)*[`'\"“]?({_PATH})[`'\"”]?(?:\s*:\s*(.+))?",
    _I | re.DOTALL,
)
_WRITE_FILE = re.compile(rf"{_POLITE}(write|create|save|append)\s+(?:to\s+)?`?({_PATH})`?\s*:?\s*(.*)", _I | re.DOTALL)
_THAT = re.compile(
    r"(?:(?:all\s+(?:of\s+)?)?(?:it|this|that|these|them|those)|everything"
    r"|(?:a|the|your)\s+(?:summary|findings?|answers?|results?|list|review|suggestions?))?",
    _I,
)
_SEARCH = re.compile(
    rf"{_POLITE}(?:(?:search|look)\b[^.\n]*?\bfor|search|find|grep(?:\s+for)?)\s+(.+)"
    r"|\b(?:where|who|which\s+\w+)\b.{0,100}?\b(?:mentions?|mentioned|says?\s+about|talks?\s+about)\s+(.+)",
    _I,
)
_REVIEW = re.compile(
    r"\b(?:look (?:through|at|over|around)|review|read|notes?|files?|workspace|folder)\b"
    r"|\b(?:improve|suggest|analy[sz]e|summar)\w*\b",
    _I,
)
_TODO = re.compile(r"\b(?:to-?dos?|to do list|plan|checklist|task list)\b", _I)
_WAIT_N = re.compile(
    r"\b(?:wait|sleep|pause|take)\b[^.\d\n]{0,20}?(\d{1,6}(?:\.\d+)?)\s*(s|secs?|seconds?|m|mins?|minutes?)\b", _I
)
_WAIT = re.compile(rf"{_POLITE}(?:wait|sleep)\b|\btake your time\b|\bwait a (?:bit|moment|minute)\b", _I)
_STOP = re.compile(
    r"\bstop (?:reading|searching|looking|there|it|now)\b|^\W*stop\W*$"
    r"|\bskip\b|\benough\b|\bjust answer\b|\banswer now\b",
    _I,
)
_ALSO = (
    re.compile(
        r"\b(?:(?:focus|concentrate)\s+on|what about|pay attention to|don'?t forget(?:\s+about)?|grep|find"
        r"|check|look\s+(?:at|for|into|up)|search(?:\s+for)?|include|consider|mention)\s+(.+)",
        _I,
    ),
    re.compile(r"^\W*(?:and\s+)?also\s+(.+)", _I),
)
_NO_QUERY = re.compile(
    r"^(?:(?:the|a|an|our|my|all|any|every|for|about|of|whether|if|that|is|anything|everything|mentions?|word)\s+)+"
    r"|\s+(?:in|through|across|from)\s+(?:(?:the|my|our|all|these|of)\s+)*(?:notes?|files?|workspace|folder)\b.*$"
    r"|\s+(?:please|too|as well|first|instead|again|now|thanks?)$",
    _I,
)
_QUOTED = re.compile(r"[“\"`]([^”\"`\n]{1,200})[”\"`]")


def intent_of(text: str) -> Intent:
    """Return the intent of a prompt."""
    straight = _straight(text)
    if _WHO.search(straight):
        return Introduce()
    if _ASK_NAME.search(straight):
        return AskName()
    if meet := _MEET.search(straight):
        return Meet(meet[1])
    return _write(text) or _search(text) or _read(text) or _general(text)


def intent_in(text: str) -> Intent:
    """Return the intent of a message to a running task; `Chat` if it only needs an acknowledgement."""
    if _STOP.search(text):
        return DemoAnswer()
    if found := _write(text) or _read(text) or _search(text):
        return found
    also = next((match for pattern in _ALSO if (match := pattern.search(_straight(text)))), None)
    return (_searched(also[1]) if also else None) or Chat()


def steered_intent_of(text: str) -> Intent:
    """Return the intent of a message that arrived just after the answer."""
    intent, requested = intent_of(text), intent_in(text)
    return requested if isinstance(intent, Chat | Review) and isinstance(requested, Search) else intent


def wait_s(text: str) -> float:
    """Return the delay that the user asked for, in seconds; 0 if none."""
    if timed := _WAIT_N.search(text):
        minutes = timed[2].lower().startswith("m")
        return min(float(timed[1]) * (60 if minutes else 1), MAX_WAIT_S)
    return DEFAULT_WAIT_S if _WAIT.search(text) else 0.0


def _straight(text: str) -> str:
    """Replace curly apostrophes, which phones insert."""
    return text.replace("\u2019", "'")


def _write(text: str) -> Write | None:
    if into := _WRITE_INTO.search(text):
        verb, what, path, after = into[1], into[2].strip(" \t:,`'\"“”"), into[3], into[4]
        content = after.strip() if after else (None if _THAT.fullmatch(what) else what)
        return Write(path, content, append=verb.lower() in {"add", "append"})
    if into := _WRITE_FILE.search(text):
        return Write(into[2], into[3].strip() or None, append=into[1].lower() == "append")
    return None


def _search(text: str) -> Search | None:
    found = _SEARCH.search(text)
    return _searched(found[1] or found[2]) if found else None


def _searched(rest: str) -> Search | None:
    if quoted := _QUOTED.search(rest):
        return Search(quoted[1].strip())
    query, previous = re.split(r"[,.;:!?\n]", rest[:300].strip())[0], None
    while query != previous:
        query, previous = _NO_QUERY.sub("", query).strip(" '\"“”`()"), query
    return Search(query[:60]) if query else None


def _read(text: str) -> Read | None:
    paths = tuple(dict.fromkeys(re.findall(_PATH, text, _I)))
    return Read(paths[:6]) if paths else None


def _general(text: str) -> Intent:
    if _REVIEW.search(text):
        return Review()
    if _TODO.search(text):
        return TodoIntent(_items(text))
    if wait_s(text):
        return Wait()
    return Introduce() if _GREETING.search(text) else Chat()


def _items(text: str) -> tuple[str, ...]:
    _, colon, rest = text.partition(":")
    parts = re.split(r"[\n,;]|\band then\b", rest) if colon else []
    return tuple(item for part in parts if (item := " ".join(part.split()).strip("-*. ")))[:20]
