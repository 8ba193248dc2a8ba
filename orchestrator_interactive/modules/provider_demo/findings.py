"""Analyse a text file: counts and open points."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTH = r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DATE = re.compile(
    r"\b\d{4}-(\d\d)-(\d\d)\b"
    rf"|\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}\b"
    rf"|\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?\b"
)
_TOPIC = re.compile(r"\b(launch|release|deadline|beta|pilot|go-live)\w*\b", re.IGNORECASE)
_FAR = 50  # characters between a topic and its date

_HEADING = re.compile(r"#{1,6}\s+(.+)")
_TASK = re.compile(r"\s*[-*+] \[( |x|X)\] (.+)")
_MARK = re.compile(r"\b(TODO|FIXME|TBD|XXX)\b")
_QUESTION = re.compile(r"\?(?=\s|$|[*_)\"”])")
_OWNER = re.compile(
    r"@\w+|\bowner\b|^[A-Z]\w+:|\b(?:by|for) (?!(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b)[A-Z]\w+"
    r"|\((?!(?:by|until|due)\b)[A-Z]\w+"
)
_DUE = re.compile(
    r"\b(?:by|until|due|before|on)\s+(?:\d|mon|tue|wed|thu|fri|sat|sun|next|tomorrow|the end)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Spot:
    """A notable line of a file."""

    path: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"`{self.path}:{self.line}`"


@dataclass(frozen=True, slots=True)
class Dated:
    topic: str
    date: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class FileFindings:
    """The findings of one file. `gaps` are table rows without an owner."""

    path: str
    lines: int
    headings: int
    done: int
    open_items: tuple[Spot, ...]
    questions: tuple[Spot, ...]
    marks: tuple[Spot, ...]
    gaps: tuple[Spot, ...]
    dates: tuple[Dated, ...]
    mentions_a_date: bool

    @property
    def without_owner(self) -> list[Spot]:
        return [spot for spot in self.open_items if not _OWNER.search(spot.text)]

    @property
    def without_date(self) -> list[Spot]:
        return [spot for spot in self.open_items if not (_DATE.search(spot.text) or _DUE.search(spot.text))]


def study(path: str, text: str) -> FileFindings:
    """Analyse the text of a file."""
    lines = [] if text == "(The file is empty.)" else [line for line in text.splitlines() if not line.startswith("[…")]
    spots = [Spot(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    tasks = [(spot, task) for spot in spots if (task := _TASK.fullmatch(spot.text))]
    prose = [spot for spot in spots if not _TASK.fullmatch(spot.text)]
    return FileFindings(
        path=path,
        lines=len(lines),
        headings=sum(1 for spot in spots if _HEADING.fullmatch(spot.text)),
        done=sum(1 for _, task in tasks if task[1] != " "),
        open_items=tuple(Spot(path, spot.line, task[2].strip()) for spot, task in tasks if task[1] == " "),
        questions=tuple(_trimmed(spot) for spot in prose if _QUESTION.search(spot.text)),
        marks=tuple(_trimmed(spot) for spot in spots if _MARK.search(spot.text)),
        gaps=_gaps(path, lines) if path.endswith(".csv") else (),
        dates=tuple(dated for spot in spots if (dated := _dated(spot))),
        mentions_a_date=any(_DATE.search(line) for line in lines),
    )


def _trimmed(spot: Spot) -> Spot:
    text = spot.text.strip().lstrip("#-*+ ").strip()
    return Spot(spot.path, spot.line, text if len(text) <= 100 else text[:99] + "…")


def _dated(spot: Spot) -> Dated | None:
    topic = _TOPIC.search(spot.text)
    date = _DATE.search(spot.text, topic.end(), topic.end() + _FAR) if topic else None
    return Dated(topic[1].lower(), _day(date), spot) if topic and date else None


def _day(date: re.Match[str]) -> str:
    month_number, day_number, day_before, month_after, month_before, day_after = date.groups()
    if month_number:
        return f"{int(day_number)} {_MONTHS[(int(month_number) - 1) % 12]}"
    month = next(name for name in _MONTHS if name.startswith(month_after or month_before))
    return f"{int(day_before or day_after)} {month}"


def _gaps(path: str, lines: list[str]) -> tuple[Spot, ...]:
    """Return the table rows with an empty owner."""
    header, *rows = [*csv.reader(lines)] or [[]]
    column = next((i for i, name in enumerate(header) if name.strip().lower() == "owner"), None)
    if column is None:
        return ()
    return tuple(
        Spot(path, number, row[0].strip())
        for number, row in enumerate(rows, 2)
        if len(row) > column and not row[column].strip()
    )
