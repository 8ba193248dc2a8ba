"""Format untrusted texts and times for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Control characters except tab and newline, lone surrogates, Unicode non-characters, and characters that change the
# text direction.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")


def visible(text: str) -> str:
    """Replace invisible control characters by their escape codes."""
    if text.isprintable():
        return text
    return _HIDDEN.sub(_sign, text.replace("\r\n", "\n"))


def truncate(text: str, max_chars: int) -> tuple[str, int]:
    """Return the beginning of a text and the number of characters left out."""
    return (text, 0) if len(text) <= max_chars else (text[:max_chars], len(text) - max_chars)


def local(ts: float | None) -> datetime | None:
    """Convert seconds since the epoch to local time; `None` if no clock can show it."""
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
    return "at an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def zone() -> str:
    """Return the name and offset of the local time zone."""
    now = datetime.now(UTC).astimezone()
    return f"{now:%Z} (UTC{now:%z})" if f"{now:%Z}" != "UTC" else "UTC"


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
