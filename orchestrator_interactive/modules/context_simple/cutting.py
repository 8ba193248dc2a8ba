"""Which rows a smaller view shows."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.context_simple.history import (
    is_of_a_hook,
    is_of_the_model,
    is_result,
    is_said,
    is_system,
)
from orchestrator_interactive.transcript.rows import call_ids, is_prompt, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator_interactive.modules.context_simple.history import MessageHistory

    Row = dict[str, Any]

# The part of the room for what is shown beside the task and the latest rows.
_ASIDE = 0.25


@dataclass(frozen=True, slots=True)
class Truncation:
    """The rows to show of the first `end` rows of a history, by their index."""

    shown: tuple[int, ...]
    end: int

    @property
    def whole_from(self) -> int:
        """The index from which on every row is shown."""
        index = self.end
        for shown in reversed(self.shown):
            if shown != index - 1:
                break
            index = shown
        return index

    def left_out(self, since: int = 0) -> int:
        """How many rows are not shown, of those from `since` on."""
        return self.end - since - sum(index >= since for index in self.shown)


@dataclass(frozen=True, slots=True)
class _Step:
    """An answer with tool calls and their results, [`begin`, `end`): a view shows all of it or nothing.

    `awaited_until` is where the late results of these calls stand, or the end where these are always shown, and while
    the calls are at work.
    """

    begin: int
    end: int
    awaited_until: int


class _Candidates:
    """The rows that may be shown; they are named by their place among each other.

    Args:
        history: all rows.
        indices: where these rows stand in it.
    """

    def __init__(self, history: MessageHistory, indices: Sequence[int]) -> None:
        self.indices = indices
        self._history = history.rows
        self.rows = [history.rows[i] for i in indices]
        self.sizes = [history.sizes[i] for i in indices]
        self.calls = [call_ids(row) if row["role"] == "assistant" else [] for row in self.rows]
        self.places = _places(self.rows, self.calls)
        self.end = len(self.rows)

    def cut(self, kept: Iterable[int], place: int) -> Truncation:
        """Show these rows, and everything from a place on."""
        shown = [*sorted(i for i in kept if i < place), *range(place, self.end)]
        return Truncation(tuple(self.indices[i] for i in shown), self.indices[-1] + 1)

    def is_answered(self, place: int) -> bool:
        """Whether the model went to work on a row, before the next of these rows."""
        until = self.indices[place + 1] if place + 1 < self.end else self.indices[place] + 1
        return any(is_of_the_model(row) or row["role"] == "tool" for row in self._history[self.indices[place] : until])

    def step_at(self, place: int) -> tuple[int, int]:
        """The rows around one, [begin, end), that may not be parted."""
        after = bisect_right(self.places, place)
        return self.places[after - 1] if after else 0, self.places[after] if after < len(self.places) else self.end


def cut_for(history: MessageHistory, indices: Sequence[int], room: float) -> Truncation:
    """The cut that shows the most of these rows within `room` tokens; where none fits, the one that shows least.

    Every cut shows the system rows, what people want in the current task, and the last step as long as the model has
    not answered it. A call whose results come late is shown as long as these are, if both do not take too much.
    """
    if not indices:
        return Truncation((), 0)
    rows = _Candidates(history, indices)
    needed, begin = _needed(rows)
    wished = _wished(rows, begin, room * _ASIDE)
    for lasting, steps in ((needed | wished, _awaited_steps(rows, needed)), (needed, [])):
        if (cut := _first_fitting(rows, room, lasting, steps)) is not None:
            return cut
    return rows.cut(needed, rows.places[-1])


def _places(rows: Sequence[Row], calls: Sequence[list[str]]) -> list[int]:
    """Where the rows may be cut: between no tool call and its result. Ascending, and there is one at least."""
    known = {call_id for ids in calls for call_id in ids}
    places: list[int] = []
    waiting: set[str] = set()  # results further on whose call has not come up yet
    for place in range(len(rows) - 1, -1, -1):
        if rows[place]["role"] == "tool" and rows[place].get("tool_call_id") in known:
            waiting.add(rows[place]["tool_call_id"])
        else:
            waiting.difference_update(calls[place])
        if not waiting:
            places.append(place)
    return places[::-1]


def _first_fitting(rows: _Candidates, room: float, lasting: set[int], steps: Sequence[_Step]) -> Truncation | None:
    after = [0, *accumulate(reversed(rows.sizes))][::-1]
    before = [0, *accumulate(size if i in lasting else 0 for i, size in enumerate(rows.sizes))]
    for place in rows.places:
        beside = [(step.begin, step.end) for step in steps if step.end <= place <= step.awaited_until]
        tokens = sum(sum(rows.sizes[slice(*step)]) for step in beside)
        if tokens > room * _ASIDE:
            beside, tokens = [], 0
        if after[place] + before[place] + tokens <= room:
            return rows.cut(lasting.union(*(range(*step) for step in beside)), place)
    return None


def _needed(rows: _Candidates) -> tuple[set[int], int]:
    """The rows that every view shows, and where the current task begins."""
    prompt = next((i for i in range(rows.end - 1, -1, -1) if is_prompt(rows.rows[i])), 0)
    begin = _begin_of_task(rows, prompt)
    needed = {i for i, row in enumerate(rows.rows) if is_system(row) and not is_of_a_hook(row)}
    needed |= {i for i in range(begin, rows.end) if is_said(rows.rows[i])}
    return needed | _unanswered(rows), begin


def _begin_of_task(rows: _Candidates, prompt: int) -> int:
    """Where the task begins: what an earlier run left unread, and what happened meanwhile, leads its prompt."""
    begin = prompt
    while begin > 0 and not rows.is_answered(begin - 1) and not is_prompt(rows.rows[begin - 1]):
        begin -= 1
    return begin


def _wished(rows: _Candidates, begin: int, aside: float) -> set[int]:
    """What is good to show as far as it fits, the latest first: texts of hooks, and prompts that nobody answered.

    An earlier prompt whose answer is left out would read as one that is still to be done.
    """
    wished: set[int] = set()
    unanswered = True
    for place in range(rows.end - 1, -1, -1):
        row = rows.rows[place]
        of_a_hook = is_of_a_hook(row) and row["role"] != "assistant"
        if place < begin:
            unanswered = unanswered and not rows.is_answered(place)
        if of_a_hook or (place < begin and unanswered and is_said(row)):
            aside -= rows.sizes[place]
            if aside < 0:
                break
            wished.add(place)
    return wished


def _unanswered(rows: _Candidates) -> set[int]:
    """The results that the model has not answered yet, with their calls."""
    # Where no word of the model is shown any more, there is none after these results.
    last = next((i for i in range(rows.end - 1, -1, -1) if is_of_the_model(rows.rows[i])), 0)
    results = {i for i in range(last, rows.end) if is_result(rows.rows[i])}
    return results.union(range(*rows.step_at(last))) if rows.calls[last] else results


def _awaited_steps(rows: _Candidates, needed: set[int]) -> list[_Step]:
    """The steps with calls whose results come late."""
    called_at: dict[str, int] = {}
    pending: dict[str, int] = {}
    awaited: dict[tuple[int, int], None] = {}  # in order: where the call is, and its late results
    for place, row in enumerate(rows.rows):
        called_at.update(dict.fromkeys(rows.calls[place], place))
        told = metadata_of(row)
        if told.get("pending"):
            pending[str(row.get("tool_call_id"))] = called_at.get(str(row.get("tool_call_id")), place)
        elif is_prompt(row):
            pending.clear()  # a run waits for its calls: what is pending still has come to nothing
        results = told.get("results")
        for call_id in results if isinstance(results, list) else ():
            call = pending.pop(call_id, called_at.get(call_id, place))
            awaited[call, rows.end if place in needed else place] = None
    awaited.update(((call, rows.end), None) for call in pending.values())
    return [_Step(*rows.step_at(call), until) for call, until in awaited]
