"""What is told to be still at work has its result told later, once, and to the model while the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.loop.tool_results import LATE_PREFIX, STILL_RUNNING
from simulated.posts import text_of

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .runs import RunRecord

    Row = dict[str, Any]

_STAGE = "waiting for late results"
_A_MOMENT_S = 0.01


class Late:
    """Follows every call from the row that says that it is at work to the row with its result."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._pending: list[str] = []
        self._excused: list[str] = []
        self._unread: list[str] = []
        self._lost: list[str] = []
        self._given_up: list[str] = []

    def row_added(self, row: Row) -> None:
        metadata = row.get("metadata") or {}
        if metadata.get("pending"):
            self._postpone(row)
        if "results" in metadata:
            self._bring_in(row, metadata["results"])
        if row["role"] == "assistant" and not row.get("tool_calls") and self._pending:
            self._scene.turn(_STAGE, on=True)
            self._scene.loop.call_later(_A_MOMENT_S, self._tell_waiting)

    def thinks(self) -> None:
        """The agent is about to ask the model."""
        self._scene.turn(_STAGE, on=False)

    def asked(self) -> None:
        """The model is asked, and reads what there is."""
        self._unread.clear()
        if self._lost:
            self._scene.blame(f"The model waits for the results of {', '.join(self._lost)}: their process was killed.")
            self._lost.clear()

    def ended(self) -> None:
        """The run tells of its end."""
        self._scene.turn(_STAGE, on=False)

    def returned(self, run: RunRecord) -> None:
        for each in self._pending if not run.was_abandoned else ():
            self._scene.blame(f"The result of {each} was to follow, and never came.")
        if run.ended_by_itself and self._unread:
            self._scene.blame(f"The model was never told the late results of {', '.join(self._unread)}.")
        self._forget()

    def excuse(self) -> None:
        """The store failed: what is missing now is not the agent's fault."""
        self._excused += self._pending
        self._pending.clear()

    def killed(self) -> None:
        """The process has died: what was at work has come to an unknown end, and the model must be told so."""
        self._lost += [*self._pending, *self._excused]
        self._pending.clear()
        self._excused.clear()
        self._forget()

    def _forget(self) -> None:
        self._given_up += [*self._pending, *self._excused]
        for each in (self._pending, self._excused, self._unread):
            each.clear()
        self._scene.turn(_STAGE, on=False)

    def _tell_waiting(self) -> None:
        if self._scene.is_at(_STAGE):
            self._scene.count("run waited for late results")
            self._scene.tell("run", f"waits for {', '.join(self._pending)}")

    def _postpone(self, row: Row) -> None:
        self._scene.count("result to follow")
        self._pending.append(row["tool_call_id"])
        if row["content"] != STILL_RUNNING:
            self._scene.blame(f"The result of {row['tool_call_id']} is to follow, and the model reads something else.")

    def _bring_in(self, row: Row, call_ids: list[str]) -> None:
        self._scene.count("late results")
        text = text_of(row)
        if row["role"] != "user" or not text.startswith(LATE_PREFIX):
            self._scene.blame("Late results stand in a row that does not say so.")
        for each in call_ids:
            owing = (self._pending, self._excused, self._lost, self._given_up)
            owed = next((some for some in owing if each in some), None)
            if owed is None:
                self._scene.blame(f"A late result came for {each}, which none was to follow for.")
                continue
            owed.remove(each)
            self._unread.append(each)
            if f"\n- call {each}, " not in text:
                self._scene.blame(f"The row with the late result of {each} does not tell it.")
