"""A notice is told once, at the beginning of a later run, and never in the middle of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from simulated.posts import text_of

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .deliveries import Deliveries
    from .runs import RunRecord

_MARK = re.compile(r"<n(\d+)>")


class Notices:
    """Follows every notice to its row."""

    def __init__(self, scene: Scenario, deliveries: Deliveries) -> None:
        self._scene = scene
        self._deliveries = deliveries
        self._count = 0
        self._waiting: list[int] = []

    def give(self) -> str:
        """A new notice."""
        self._count += 1
        self._waiting.append(self._count)
        return f"<n{self._count}> something was done elsewhere"

    def row_added(self, row: dict[str, Any], run: RunRecord | None) -> None:
        for found in map(int, _MARK.findall(text_of(row))):
            if found not in self._waiting:
                self._scene.blame(f"Notice {found} was told twice.")
                continue
            if self._waiting[0] != found:
                self._scene.blame(f"Notice {found} was told before notice {self._waiting[0]}, its elder.")
            self._waiting.remove(found)
            if run is not None and self._deliveries.has_arrived(run.prompt):
                self._scene.blame(f"Notice {found} was told in the middle of a run.")

    def forget(self) -> None:
        """The process was killed; notices are in its memory only."""
        self._waiting.clear()

    def all_over(self) -> None:
        for each in self._waiting:
            self._scene.blame(f"Notice {each} was never told.")
