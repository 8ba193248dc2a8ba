"""Format untrusted texts and times for people, and the items of a conversation for a terminal or as Markdown."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator_interactive.interactions.export.items import ExportPart, Item

# Control characters except tab and newline, lone surrogates, Unicode non-characters, and characters that change the
# text direction.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")
_MAX_CHARS, _MAX_CHARS_OF_A_LINE = 4_000, 300
_INDENT = " " * 8


def visible(text: str) -> str:
    """Replace invisible control characters by their escape codes."""
    return text if text.isprintable() else _HIDDEN.sub(_sign, text.replace("\r\n", "\n"))


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def local(ts: float | None) -> datetime | None:
    """Convert seconds since the epoch to local time; `None` if no clock can show it."""
    try:
        return datetime.fromtimestamp(ts, UTC).astimezone() if ts else None
    except (ValueError, OverflowError, OSError):
        return None


def time_of_day(ts: float | None) -> str:
    moment = local(ts)
    return "--:--:--" if moment is None else f"{moment:%H:%M:%S}"


def day_and_time(ts: float | None) -> str:
    moment = local(ts)
    return "at an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def lines(item: Item) -> Iterator[str]:
    """Return the lines of an item, without terminal control characters."""
    match item.kind:
        case "task":
            yield ""
            yield f"── Task {item.index} ── {day_and_time(item.ts)} ──"
        case "person" | "agent" | "note":
            yield _head(item, item.title)
            yield from _body(item.parts)
        case "call" | "request":
            verb = "Asks" if item.kind == "request" else "Calls"
            yield _head(item, f"{verb} {item.title} {_in_a_line(item.parts[0].text)}")
            yield _head(item.result, f"→ {item.result.title}") if item.result else f"{_INDENT}→ no result"
            yield from _body(item.result.parts if item.result else ())
        case _:
            until = f" until {day_and_time(item.until)}" if item.until else ""
            yield _head(item, f"[{item.title}{until}]")
            yield from _body(item.parts)


def markdown(item: Item) -> str:
    """Return an item as Markdown; thinking and the results of calls are left out."""
    match item.kind:
        case "task" | "finished":
            return ""
        case "person" | "agent" | "note":
            text = "\n\n".join(visible(part.text) for part in item.parts if part.kind in {"text", "note"})
            return f"\n**{visible(item.title)}**, {day_and_time(item.ts)}\n\n{text}\n" if text else ""
        case "call" | "request":
            outcome = item.result.title if item.result else "no result"
            arguments = _in_a_line(item.parts[0].text).replace("`", "'")
            return f"\n> {_in_a_line(item.title)} `{arguments}` → {outcome}\n"
    return f"\n> {_in_a_line(item.title)}\n"


def _head(item: Item, title: str) -> str:
    details = "; ".join(item.notes)
    line = f"{title} ({details})" if details else title
    return f"{item.index:>6}  {time_of_day(item.ts)}  {_in_a_line(line)}"


def _body(parts: Iterable[ExportPart]) -> Iterator[str]:
    for part in parts:
        match part.kind:
            case "image":
                yield f"{_INDENT}[image]"
            case "thinking":
                yield f"{_INDENT}(thinking) {_in_a_line(part.text)}"
            case _:
                shown, missing = part.text[:_MAX_CHARS], len(part.text) - _MAX_CHARS
                yield from (f"{_INDENT}{line}".rstrip() for line in visible(shown).split("\n"))
                if missing > 0:
                    yield f"{_INDENT}[… {missing} more characters; the JSON lines export has them]"


def _in_a_line(text: str) -> str:
    line = " ".join(visible(text).split())
    return f"{line[:_MAX_CHARS_OF_A_LINE]} …" if len(line) > _MAX_CHARS_OF_A_LINE else line
