"""How a run ended, and how its last row tells that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.transcript.answer_parts import cut_of
from orchestrator_interactive.transcript.rows import marked, metadata_of

if TYPE_CHECKING:
    Row = dict[str, Any]

Status = Literal["success", "incomplete", "cancelled", "suspended", "error"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended; `reason` and `detail` say why it is incomplete."""

    text: str
    status: Status
    reason: str | None = None
    detail: str | None = None


SUSPENDED = RunOutcome("", "suspended")


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Why an answer is not all that was wanted."""

    reason: str
    detail: str | None = None


def outcome_of(text: str, lack: Incomplete | None) -> RunOutcome:
    """How a run ended whose answer lacks this."""
    return RunOutcome(text, "incomplete", lack.reason, lack.detail) if lack else RunOutcome(text, "success")


def lacking_row(row: Row, lack: Incomplete | None) -> Row:
    """The row of an answer that lacks something: should it be the last one, people are told why."""
    return marked(row, lack={"reason": lack.reason, "detail": lack.detail}) if lack else row


def outcome_in(row: Row, text: str) -> RunOutcome:
    """How a run ended whose last word stands in this row."""
    if cut_of(row) == "stopped":
        return RunOutcome(text, "cancelled")
    match metadata_of(row).get("lack"):
        case {"reason": str(reason), "detail": str() | None as detail}:
            return outcome_of(text, Incomplete(reason, detail))
    return outcome_of(text, None)
