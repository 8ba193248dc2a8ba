"""The results of checks: one line each, with the fix for each problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    PASSED = "passed"
    WARNING = "warning"  # the service works with limitations
    FAILED = "failed"
    SKIPPED = "skipped"


_MARKS = {FindingLevel.PASSED: "✓", FindingLevel.WARNING: "!", FindingLevel.FAILED: "✗", FindingLevel.SKIPPED: "–"}  # noqa: RUF001 - a mark
_WIDTH = 14


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check; `message` is a sentence that states the problem and the fix."""

    area: str
    level: FindingLevel
    message: str

    @property
    def line(self) -> str:
        return f"{_MARKS[self.level]} {self.area:{_WIDTH}} {self.message}"


def passed(area: str, message: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.PASSED, message)


def warning(area: str, message: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.WARNING, message)


def failed(area: str, message: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.FAILED, message)


def skipped(area: str, message: str) -> DoctorFinding:
    return DoctorFinding(area, FindingLevel.SKIPPED, message)
