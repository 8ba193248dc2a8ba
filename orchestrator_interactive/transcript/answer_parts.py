"""What a run says to people, in numbered parts: a function of its rows, so that a run that goes on counts alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.transcript.rows import call_ids, is_of_hook, marked, metadata_of, text_of

if TYPE_CHECKING:
    Row = dict[str, Any]

# What cut an answer: its length limit, and it is to go on; an urgent message, after which it is asked for anew; a stop.
Cut = Literal["length", "urgent", "stopped"]


@dataclass(frozen=True, slots=True)
class InterimText:
    """A text for people; `number` counts those of its run from 1. One that is torn ends in mid-sentence."""

    number: int
    text: str
    is_torn: bool


def cut_row(row: Row, cut: Cut | None) -> Row:
    """The row of an answer, with what cut it."""
    return row if cut is None else marked(row, cut=cut)


def cut_of(row: Row) -> Any:
    """What cut the answer in a row; `None`: nothing."""
    return metadata_of(row).get("cut")


def has_words(row: Row) -> bool:
    """Whether people may read something in the row of an answer; words beside calls are the agent's own."""
    is_answer = row.get("role") == "assistant" and not is_of_hook(row)
    return is_answer and (not call_ids(row) or cut_of(row) == "urgent")


class InterimTexts:
    """The texts of one run, as its rows come.

    An answer in words is part of a text until something comes between: what people wrote meanwhile, calls, or results
    that had to follow later. While such results are owed to the model, an answer that is complete is a text at once.
    Words beside calls are the agent's own, unless an urgent message cut them.
    """

    def __init__(self) -> None:
        self._complete = 0
        self._unshown = ""
        self._is_torn = False
        self._owed: set[str] = set()

    @property
    def unshown(self) -> str:
        """What was said since the last part."""
        return self._unshown

    @property
    def next_number(self) -> int:
        """The number of the part that `unshown` will be."""
        return self._complete + 1

    def add(self, row: Row) -> InterimText | None:
        """Take in a row that stands in the log; the part that it completes, if it does."""
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
        """The part that consists of what was said since the last one, if there is anything to read in it."""
        text, self._unshown = self._unshown, ""
        if not text.strip():
            return None
        self._complete += 1
        return InterimText(self._complete, text, self._is_torn)
