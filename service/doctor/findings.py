"""What the doctor found: one line each, with what to change where something is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    WELL = "well"
    LACKING = "lacking"  # the service works, but not all of it
    WRONG = "wrong"
    UNKNOWN = "unknown"


_MARKS = {FindingLevel.WELL: "✓", FindingLevel.LACKING: "!", FindingLevel.WRONG: "✗", FindingLevel.UNKNOWN: "–"}  # noqa: RUF001 - a mark
_WIDTH = 14


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """What is so in an area that was looked at; `said` tells what is wrong, and what to change."""

    area: str
    verdict: FindingLevel
    said: str

    @property
    def line(self) -> str:
        return f"{_MARKS[self.verdict]} {self.area:{_WIDTH}} {self.said}"


def well(area: str, said: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.WELL, said)


def lacking(area: str, said: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.LACKING, said)


def wrong(area: str, said: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.WRONG, said)


def unknown(area: str, said: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.UNKNOWN, said)
