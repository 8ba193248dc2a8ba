"""The items of a conversation as lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.export.readable import day_and_time, time_of_day, truncate, visible
from orchestrator_interactive.interactions.export.transcript import (
    CallResult,
    ExportedQuestion,
    ExportedText,
    ExportMark,
    Section,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator_interactive.interactions.export.parts import ExportPart
    from orchestrator_interactive.interactions.export.transcript import Item

_MAX_CHARS, _MAX_CHARS_OF_A_LINE = 4_000, 300
_INDENT = " " * 8


def lines(item: Item) -> Iterator[str]:
    """Return the lines of an item, without terminal control characters."""
    match item:
        case Section():
            yield ""
            yield f"── Task {item.episode} ── {day_and_time(item.ts)} ──"
        case ExportedText():
            yield _head(item, item.name, item.notes)
            yield from _body(item.parts)
        case ExportedQuestion():
            verb = f"Asks {item.name}" if item.target == "agent" else f"Calls {item.name}"
            yield _head(item, f"{verb} {_in_a_line(item.arguments)}")
            yield from _result(item.result)
        case ExportMark():
            until = f" until {day_and_time(item.until)}" if item.until else ""
            text = f"Damaged: {item.text}" if item.kind == "damaged" else item.text
            yield _head(item, f"[{text}{until}]")
            yield from _body(item.parts)


def _result(result: CallResult | None) -> Iterator[str]:
    if result is None:
        yield f"{_INDENT}→ no result"
        return
    yield _head(result, f"→ {result.outcome}", result.notes)
    yield from _body(result.parts)


def _head(
    item: ExportedText | ExportedQuestion | ExportMark | CallResult, title: str, notes: Iterable[str] = ()
) -> str:
    details = "; ".join(notes)
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
                yield from _indented(part.text)


def _indented(text: str) -> Iterator[str]:
    shown, missing = truncate(text, _MAX_CHARS)
    for line in visible(shown).split("\n"):
        yield f"{_INDENT}{line}".rstrip()
    if missing:
        yield f"{_INDENT}[… {missing} more characters; the JSON lines export has them]"


def _in_a_line(text: str) -> str:
    shown, missing = truncate(" ".join(visible(text).split()), _MAX_CHARS_OF_A_LINE)
    return f"{shown} …" if missing else shown
