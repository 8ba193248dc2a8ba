"""Texts of whoever, and times, as they can be shown to people."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Control characters but for tab and newline, lone surrogates, what Unicode has no character for, and what turns the
# direction of the text around it.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")


def visible(text: str) -> str:
    """The text with the number of each character in its place that would do something instead of being seen."""
    if text.isprintable():
        return text
    return _HIDDEN.sub(_sign, text.replace("\r\n", "\n"))


def cut(text: str, most_chars: int) -> tuple[str, int]:
    """The beginning of a text, and how many characters are missing."""
    return (text, 0) if len(text) <= most_chars else (text[:most_chars], len(text) - most_chars)


def local(ts: float | None) -> datetime | None:
    """A time in seconds since the epoch, where this process is; `None` where it is none that a clock could show."""
    if not ts:
        return None
    try:
        return datetime.fromtimestamp(ts, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def time_of_day(ts: float | None) -> str:
    moment = local(ts)
    return "--:--:--" if moment is None else f"{moment:%H:%M:%S}"


def day_and_time(ts: float | None) -> str:
    moment = local(ts)
    return "at a time that is not known" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def zone() -> str:
    """Where this process is, by its clock."""
    now = datetime.now(UTC).astimezone()
    return f"{now:%Z} (UTC{now:%z})" if f"{now:%Z}" != "UTC" else "UTC"


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
