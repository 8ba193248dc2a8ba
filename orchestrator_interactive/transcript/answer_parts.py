"""The texts of a run for people, in numbered parts. Derived from the rows only, so a resumed run numbers them alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.transcript.rows import call_ids, is_of_hook, marked, metadata_of, text_of

if TYPE_CHECKING:
    Row = dict[str, Any]

# Why an answer was cut: at its length limit (the model continues it), by an urgent message, or by a stop.
PartialReason = Literal["length", "urgent", "stopped"]


@dataclass(frozen=True, slots=True)
class InterimText:
    """A text for people; `number` counts the texts of its run from 1. With `is_partial` it may end in mid-sentence."""

    number: int
    text: str
    is_partial: bool


def mark_partial(row: Row, reason: PartialReason | None) -> Row:
    """Record in the row of an answer why it was cut."""
    return row if reason is None else marked(row, partial=reason)


def partial_reason_of(row: Row) -> Any:
    """Return why the answer in a row was cut; None if it was not."""
    return metadata_of(row).get("partial")


class InterimTexts:
    """The texts of one run, collected from its rows in order.

    Consecutive text answers form one text, until an injection, a tool call or a postponed result ends it. While
    postponed results are missing, each complete answer is a text at once. Text next to tool calls is for the agent
    only, unless an urgent message cut the answer, or precedes it: its author reads the reply at once.
    """

    def __init__(self) -> None:
        self._completed = 0
        self._pending_text = ""
        self._is_partial = False
        self._follows_urgent = False
        self._awaited_results: set[str] = set()

    @property
    def pending_text(self) -> str:
        """The text since the last part."""
        return self._pending_text

    @property
    def next_number(self) -> int:
        """The number of the part that `pending_text` will be."""
        return self._completed + 1

    def add(self, row: Row) -> InterimText | None:
        """Add a committed row, and return the part that it completes, if any."""
        role = row.get("role")
        if role == "tool" and "metadata" not in row:
            return None
        metadata = metadata_of(row)
        match role:
            case "assistant" if not is_of_hook(row):
                return self._add_answer(row, metadata)
            case "tool" if metadata.get("pending") is True:
                self._awaited_results.add(str(row.get("tool_call_id")))
            case "user" if "injections" in metadata:
                self._follows_urgent = metadata.get("urgent") is True
                return self.flush()
            case "user" if isinstance(results := metadata.get("results"), list):
                self._awaited_results.difference_update(map(str, results))
                return self.flush()
            case "user" if not is_of_hook(row):  # a resumed run knows no rows before its prompt
                self._follows_urgent = False
        return None

    def is_visible(self, row: Row) -> bool:
        """Return whether the next row is an answer with text for people."""
        if row.get("role") != "assistant" or is_of_hook(row):
            return False
        return self._follows_urgent or not call_ids(row) or partial_reason_of(row) == "urgent"

    def _add_answer(self, row: Row, metadata: dict[str, Any]) -> InterimText | None:
        cut, complete = metadata.get("partial"), None
        has_calls = bool(row.get("tool_calls")) or bool(call_ids(row))
        is_visible, self._follows_urgent = self.is_visible(row), False
        if has_calls:
            complete = self.flush()
        text = "" if metadata.get("hidden") is True else text_of(row)
        if text and (is_visible or not has_calls):
            self._pending_text += text
            self._is_partial = cut is not None
        if cut is None and (is_visible if has_calls else bool(self._awaited_results)):
            complete = self.flush()
        return complete

    def flush(self) -> InterimText | None:
        """Complete the current part, and return it if it is not blank."""
        text, self._pending_text = self._pending_text, ""
        if not text.strip():
            return None
        self._completed += 1
        return InterimText(self._completed, text, self._is_partial)
