"""Which rows a smaller view shows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.context_simple.history import (
    begins_a_task,
    is_of_a_hook,
    is_of_the_model,
    is_result,
    is_said,
    is_system,
    metadata,
)
from orchestrator_interactive.rows import call_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.modules.context_simple.history import History

    Row = dict[str, Any]

# The part of the room for what is shown beside the task and the latest rows.
_ASIDE = 0.25


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows of a view: those `kept` from before `at`, and every row from there on, up to `end`."""

    kept: tuple[int, ...]
    at: int
    end: int

    @property
    def shown(self) -> tuple[int, ...]:
        return (*self.kept, *range(self.at, self.end))

    def left_out(self, since: int = 0) -> int:
        """How many rows are not shown, of those from `since` on."""
        return max(0, self.at - since) - sum(index >= since for index in self.kept)


@dataclass(frozen=True, slots=True)
class _Step:
    """An answer with tool calls and their results, [`begin`, `end`): a view shows all of it or nothing.

    `awaited_until` is the row with the late results of these calls, or the end of the conversation where that row is
    always shown, and while they are at work.
    """

    begin: int
    end: int
    awaited_until: int


def cut_for(history: History, room: float) -> Cut:
    """The cut that shows the most within `room` tokens; where none fits, the one that shows least.

    Every cut shows the system rows, what people want in the current task, and the last step as long as the model has
    not answered it. A call whose results come late is shown as long as these are, if both do not take too much.
    """
    rows, end = history.rows, len(history.rows)
    places = cut_places(rows)
    needed, begin = _needed(rows, places)
    wished = _wished(history, begin, room * _ASIDE)
    for lasting, steps in ((needed | wished, _awaited_steps(rows, places, needed)), (needed, [])):
        if (cut := _first_fitting(history, room, places, lasting, steps)) is not None:
            return cut
    place = places[-1] if places else end
    return Cut(tuple(sorted(i for i in needed if i < place)), place, end)


def _first_fitting(
    history: History, room: float, places: Sequence[int], lasting: set[int], steps: Sequence[_Step]
) -> Cut | None:
    sizes = history.sizes
    after = [0, *accumulate(reversed(sizes))][::-1]
    before = [0, *accumulate(size if i in lasting else 0 for i, size in enumerate(sizes))]
    for place in places:
        beside = [(s.begin, s.end) for s in steps if s.end <= place <= s.awaited_until]
        tokens = sum(sum(sizes[slice(*step)]) for step in beside)
        if tokens > room * _ASIDE:
            beside, tokens = [], 0
        if after[place] + before[place] + tokens <= room:
            kept = {i for i in lasting if i < place}.union(*(range(*step) for step in beside))
            return Cut(tuple(sorted(kept)), place, len(sizes))
    return None


def cut_places(rows: Sequence[Row]) -> list[int]:
    """Where the rows may be cut: between no tool call and its result. Ascending."""
    calls = {call_id for row in rows if row["role"] == "assistant" for call_id in call_ids(row)}
    places: list[int] = []
    waiting: set[str] = set()  # results further on whose call has not come up yet
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        if row["role"] == "tool" and row.get("tool_call_id") in calls:
            waiting.add(row["tool_call_id"])
        elif row["role"] == "assistant":
            waiting.difference_update(call_ids(row))
        if not waiting:
            places.append(index)
    return places[::-1]


def _needed(rows: Sequence[Row], places: Sequence[int]) -> tuple[set[int], int]:
    """The rows that every view shows, and where the current task begins."""
    prompt = max((i for i, row in enumerate(rows) if begins_a_task(row)), default=0)
    begin = _begin_of_task(rows, prompt)
    needed = {i for i, row in enumerate(rows) if is_system(row) and not is_of_a_hook(row)}
    needed |= {i for i in range(begin, len(rows)) if is_said(rows[i])}
    return needed | _unanswered(rows, places), begin


def _begin_of_task(rows: Sequence[Row], prompt: int) -> int:
    """Where the task begins: what an earlier run left unread, and what happened meanwhile, leads its prompt."""
    begin = prompt
    while begin > 0 and rows[begin - 1]["role"] == "user" and not begins_a_task(rows[begin - 1]):
        begin -= 1
    return begin


def _wished(history: History, begin: int, aside: float) -> set[int]:
    """What is good to show as far as it fits, the latest first: texts of hooks, and prompts that nobody answered.

    An earlier prompt whose answer is left out would read as one that is still to be done.
    """
    wished: set[int] = set()
    unanswered = True
    for index in range(len(history.rows) - 1, -1, -1):
        row = history.rows[index]
        of_a_hook = is_of_a_hook(row) and row["role"] != "assistant"
        if index < begin:
            unanswered = unanswered and row["role"] != "tool" and not is_of_the_model(row)
        if of_a_hook or (index < begin and unanswered and is_said(row)):
            aside -= history.sizes[index]
            if aside < 0:
                break
            wished.add(index)
    return wished


def _unanswered(rows: Sequence[Row], places: Sequence[int]) -> set[int]:
    """The results that the model has not answered yet, with their calls."""
    last = max((i for i, row in enumerate(rows) if is_of_the_model(row)), default=None)
    if last is None:
        return set()
    late = {i for i in range(last, len(rows)) if is_result(rows[i])}
    return late.union(range(*_step_at(last, places, len(rows)))) if call_ids(rows[last]) else late


def _awaited_steps(rows: Sequence[Row], places: Sequence[int], needed: set[int]) -> list[_Step]:
    """The steps with calls whose results come late."""
    end = len(rows)
    called_at: dict[str, int] = {}
    pending: dict[str, int] = {}
    awaited: dict[tuple[int, int], None] = {}  # in order: where the call is, and its late results
    for index, row in enumerate(rows):
        if row["role"] == "assistant":
            called_at.update(dict.fromkeys(call_ids(row), index))
        elif row["role"] == "tool" and metadata(row).get("pending"):
            pending[row["tool_call_id"]] = called_at.get(row["tool_call_id"], index)
        elif begins_a_task(row):
            pending.clear()  # a run waits for its calls: what is pending still has come to nothing
        for call_id in metadata(row).get("results", ()):
            call = pending.pop(call_id, called_at.get(call_id, index))
            awaited[call, end if index in needed else index] = None
    awaited.update(((call, end), None) for call in pending.values())
    return [_Step(*_step_at(call, places, end), until) for call, until in awaited]


def _step_at(index: int, places: Sequence[int], end: int) -> tuple[int, int]:
    """Begin and end of the rows between two cut places that this one is among."""
    before, after = bisect_right(places, index), bisect_left(places, index + 1)
    return places[before - 1] if before else 0, places[after] if after < len(places) else end
