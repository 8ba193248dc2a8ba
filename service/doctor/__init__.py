"""Installation checks. Each result is a line, with the fix for each problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


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


def _of(level: FindingLevel) -> Callable[[str, str], DoctorFinding]:
    return lambda area, message: DoctorFinding(area, level, message)


passed = _of(FindingLevel.PASSED)
warning = _of(FindingLevel.WARNING)
failed = _of(FindingLevel.FAILED)
skipped = _of(FindingLevel.SKIPPED)
