"""What is told to be still at work has its result told later, once, and to the model while the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.results import LATE_PREFIX, STILL_RUNNING
from simulated.posts import text_of

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.messages import ChatRequest
    from simulated.scene import Scene

    from .runs import RunRecord

    Row = dict[str, Any]

_STAGE = "waiting for late results"


class Late:
    """Follows every call from the row that says that it is at work to the row with its result."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._pending: list[str] = []
        self._excused: list[str] = []
        self._unread: list[str] = []
        self._rows = 0

    def row_added(self, row: Row) -> None:
        metadata = row.get("metadata") or {}
        if metadata.get("pending"):
            self._postpone(row)
        if "results" in metadata:
            self._bring_in(row, metadata["results"])
        if row["role"] == "assistant" and not row.get("tool_calls"):
            self._scene.turn(_STAGE, on=bool(self._pending))

    def thinks(self) -> None:
        """The agent is about to ask the model."""
        self._scene.turn(_STAGE, on=False)

    def asked(self, request: ChatRequest, *, is_whole: bool) -> None:
        self._unread.clear()
        texts = (text_of(m.model_dump(include={"content"})) for m in request.messages if m.role == "user")
        read = sum(text.startswith(LATE_PREFIX) for text in texts)
        if is_whole and read != self._rows:
            self._scene.blame(f"The log has {self._rows} rows with late results; the model reads {read}.")

    def ended(self) -> None:
        """The run tells of its end."""
        self._scene.turn(_STAGE, on=False)

    def returned(self, run: RunRecord) -> None:
        for each in self._pending if not run.was_abandoned else ():
            self._scene.blame(f"The result of {each} was to follow, and never came.")
        if run.ended_by_itself and self._unread:
            self._scene.blame(f"The model was never told the late results of {', '.join(self._unread)}.")
        self.forget()

    def excuse(self) -> None:
        """The store failed: what is missing now is not the agent's fault."""
        self._excused += self._pending
        self._pending.clear()

    def forget(self) -> None:
        """The run is over, or the process was killed."""
        for each in (self._pending, self._excused, self._unread):
            each.clear()
        self._scene.turn(_STAGE, on=False)

    def _postpone(self, row: Row) -> None:
        self._scene.count("result to follow")
        self._pending.append(row["tool_call_id"])
        if row["content"] != STILL_RUNNING:
            self._scene.blame(f"The result of {row['tool_call_id']} is to follow, and the model reads something else.")

    def _bring_in(self, row: Row, call_ids: list[str]) -> None:
        self._scene.count("late results")
        self._rows += 1
        text = text_of(row)
        if row["role"] != "user" or not text.startswith(LATE_PREFIX):
            self._scene.blame("Late results stand in a row that does not say so.")
        for each in call_ids:
            if each not in self._pending + self._excused:
                self._scene.blame(f"A late result came for {each}, which none was to follow for.")
                continue
            (self._pending if each in self._pending else self._excused).remove(each)
            self._unread.append(each)
            if f"\n- call {each}, " not in text:
                self._scene.blame(f"The row with the late result of {each} does not tell it.")
