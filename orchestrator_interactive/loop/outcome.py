"""The outcome of a run, and its form in the run's last row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.transcript.answer_parts import partial_reason_of
from orchestrator_interactive.transcript.rows import marked, metadata_of

if TYPE_CHECKING:
    Row = dict[str, Any]

RunStatus = Literal["success", "incomplete", "cancelled", "suspended", "error"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run; `reason` and `detail` explain the status "incomplete"."""

    text: str
    status: RunStatus
    reason: str | None = None
    detail: str | None = None


SUSPENDED = RunOutcome("", "suspended")


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Why an answer is incomplete."""

    reason: str
    detail: str | None = None


def outcome_of(text: str, incomplete: Incomplete | None) -> RunOutcome:
    """Return the outcome of a run with this last text."""
    return (
        RunOutcome(text, "incomplete", incomplete.reason, incomplete.detail)
        if incomplete
        else RunOutcome(text, "success")
    )


def incomplete_row(row: Row, incomplete: Incomplete | None) -> Row:
    """Record in the row of an answer why it is incomplete; used if the answer is the run's last."""
    return marked(row, incomplete={"reason": incomplete.reason, "detail": incomplete.detail}) if incomplete else row


def outcome_in(row: Row, text: str) -> RunOutcome:
    """Return the outcome of a run that ended with this row."""
    if partial_reason_of(row) == "stopped":
        return RunOutcome(text, "cancelled")
    match metadata_of(row).get("incomplete"):
        case {"reason": str(reason), "detail": str() | None as detail}:
            return outcome_of(text, Incomplete(reason, detail))
    return outcome_of(text, None)
