"""What the doctor found: one line each, with what to change where something is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    WELL = "well"
    LACKING = "lacking"  # the service works, but not all of it
    WRONG = "wrong"
    UNKNOWN = "unknown"


_MARKS = {Verdict.WELL: "✓", Verdict.LACKING: "!", Verdict.WRONG: "✗", Verdict.UNKNOWN: "–"}  # noqa: RUF001 - a mark
_WIDTH = 14


@dataclass(frozen=True, slots=True)
class Finding:
    """What is so in an area that was looked at; `said` tells what is wrong, and what to change."""

    area: str
    verdict: Verdict
    said: str

    @property
    def line(self) -> str:
        return f"{_MARKS[self.verdict]} {self.area:{_WIDTH}} {self.said}"


def well(area: str, said: str) -> Finding:
    return Finding(area, Verdict.WELL, said)


def lacking(area: str, said: str) -> Finding:
    return Finding(area, Verdict.LACKING, said)


def wrong(area: str, said: str) -> Finding:
    return Finding(area, Verdict.WRONG, said)


def unknown(area: str, said: str) -> Finding:
    return Finding(area, Verdict.UNKNOWN, said)
