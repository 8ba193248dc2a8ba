"""The texts of a run for people, in numbered parts. Derived from the rows only, so a resumed run numbers them alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.transcript.rows import call_ids, is_of_hook, marked, metadata_of, text_of

if TYPE_CHECKING:
    Row = dict[str, Any]

# Why an answer was cut: at its length limit (the model continues it), by an urgent message, or by a stop.
Cut = Literal["length", "urgent", "stopped"]


@dataclass(frozen=True, slots=True)
class InterimText:
    """A text for people; `number` counts the texts of its run from 1. With `is_torn` it may end in mid-sentence."""

    number: int
    text: str
    is_torn: bool


def cut_row(row: Row, cut: Cut | None) -> Row:
    """Record in the row of an answer why it was cut."""
    return row if cut is None else marked(row, cut=cut)


def cut_of(row: Row) -> Any:
    """Return why the answer in a row was cut; None if it was not."""
    return metadata_of(row).get("cut")


def has_words(row: Row) -> bool:
    """Return whether a row is an answer with text for people; text next to tool calls is for the agent only."""
    is_answer = row.get("role") == "assistant" and not is_of_hook(row)
    return is_answer and (not call_ids(row) or cut_of(row) == "urgent")


class InterimTexts:
    """The texts of one run, collected from its rows in order.

    Consecutive text answers form one text, until an injection, a tool call or a postponed result ends it. While
    postponed results are missing, each complete answer is a text at once. Text next to tool calls is for the agent
    only, unless an urgent message cut the answer.
    """

    def __init__(self) -> None:
        self._complete = 0
        self._unshown = ""
        self._is_torn = False
        self._owed: set[str] = set()

    @property
    def unshown(self) -> str:
        """The text since the last part."""
        return self._unshown

    @property
    def next_number(self) -> int:
        """The number of the part that `unshown` will be."""
        return self._complete + 1

    def add(self, row: Row) -> InterimText | None:
        """Add a committed row, and return the part that it completes, if any."""
        metadata = metadata_of(row)
        match row.get("role"):
            case "assistant" if not is_of_hook(row):
                return self._add_answer(row)
            case "tool" if metadata.get("pending") is True:
                self._owed.add(str(row.get("tool_call_id")))
            case "user" if "injections" in metadata:
                return self.rest()
            case "user" if isinstance(results := metadata.get("results"), list):
                self._owed.difference_update(map(str, results))
                return self.rest()
        return None

    def _add_answer(self, row: Row) -> InterimText | None:
        cut, complete = cut_of(row), None
        has_calls = bool(call_ids(row))
        if has_calls:
            complete = self.rest()
        if has_words(row):
            self._say("" if metadata_of(row).get("unsaid") is True else text_of(row), is_torn=cut is not None)
        if not has_calls and cut is None and self._owed:
            complete = self.rest()
        return complete

    def _say(self, text: str, *, is_torn: bool) -> None:
        if text:
            self._unshown += text
            self._is_torn = is_torn

    def rest(self) -> InterimText | None:
        """Complete the current part, and return it if it is not blank."""
        text, self._unshown = self._unshown, ""
        if not text.strip():
            return None
        self._complete += 1
        return InterimText(self._complete, text, self._is_torn)
