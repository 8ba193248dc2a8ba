"""In the log, too, a call and its result stand together, whatever becomes of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .requests import call_ids

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .runs import RunRecord


class Pairs:
    """Watches the log row by row."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._open: list[str] = []
        self._excused: list[str] = []

    def row_added(self, row: dict[str, Any]) -> None:
        if row["role"] == "tool":
            self._close(row["tool_call_id"])
            return
        if self._open:
            self._scene.blame(f"A row of the role '{row['role']}' came before the results of {', '.join(self._open)}.")
        self._open = call_ids(row)

    def excuse(self) -> None:
        """The store failed, or the process was killed; what is missing now is not the agent's fault."""
        self._excused, self._open = self._open, []

    def returned(self, run: RunRecord) -> None:
        if self._open and not run.was_abandoned:
            self._scene.blame(f"The run is over, and the log has no result of {', '.join(self._open)}.")
        self._open = []

    def _close(self, call_id: str) -> None:
        if call_id in self._open:
            self._open.remove(call_id)
        elif call_id not in self._excused:
            self._scene.blame(f"A result came without its call before it: {call_id}.")
