"""The results of checks: one line each, with the fix for each problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    WELL = "well"
    LACKING = "lacking"  # the service works with limitations
    WRONG = "wrong"
    UNKNOWN = "unknown"


_MARKS = {FindingLevel.WELL: "✓", FindingLevel.LACKING: "!", FindingLevel.WRONG: "✗", FindingLevel.UNKNOWN: "–"}  # noqa: RUF001 - a mark
_WIDTH = 14


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check; `said` is a sentence that states the problem and the fix."""

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
