"""Select the rows of a smaller view, and shorten single rows when leaving out others is not enough."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions.rows import as_json
from orchestrator_interactive.modules.context_simple.history import (
    is_from_user,
    is_of_the_model,
    is_result,
    is_system,
)
from orchestrator_interactive.transcript.rows import (
    BYTES_PER_TOKEN,
    MARK_END,
    call_ids,
    estimate,
    is_of_hook,
    is_prompt,
    metadata_of,
    truncate_middle,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator_interactive.modules.context_simple.history import MessageHistory

    Row = dict[str, Any]

# Fraction of the budget for optional rows: hook texts, unanswered prompts and calls with late results.
_OPTIONAL = 0.25
# Size at which a text is still useful.
_READABLE_TOKENS = 250
# Minimum for a user row, so that its first line still names the author.
_USER_CHARS = 400
_MARK_TOKENS = 20


@dataclass(frozen=True, slots=True)
class Truncation:
    """Indices of the rows to show, among the first `end` rows of a history."""

    shown: tuple[int, ...]
    end: int

    @property
    def untruncated_from(self) -> int:
        """Start of the uninterrupted run of shown rows at the end."""
        index = self.end
        for shown in reversed(self.shown):
            if shown != index - 1:
                break
            index = shown
        return index

    def left_out(self, since: int = 0) -> int:
        """Count the rows from `since` on that are not shown."""
        return self.end - since - sum(index >= since for index in self.shown)


@dataclass(frozen=True, slots=True)
class _Step:
    """An answer with tool calls and their results, [`begin`, `end`); a view shows all of it or nothing.

    `awaited_until` is the position of the calls' late results. It is the end if those are always shown, or while the
    calls are still running.
    """

    begin: int
    end: int
    awaited_until: int


class _Candidates:
    """The rows that a view may show, addressed by their position in this list.

    Args:
        history: all rows.
        indices: indices of the candidate rows in the history.
    """

    def __init__(self, history: MessageHistory, indices: Sequence[int]) -> None:
        self.indices = indices
        self._history = history.rows
        self.rows = [history.rows[i] for i in indices]
        self.sizes = [history.sizes[i] for i in indices]
        self.calls = [call_ids(row) if row["role"] == "assistant" else [] for row in self.rows]
        self.cut_points = _cut_points(self.rows, self.calls)
        self.end = len(self.rows)

    def truncate(self, kept: Iterable[int], place: int) -> Truncation:
        """Show these rows, and all rows from `place` on."""
        shown = [*sorted(i for i in kept if i < place), *range(place, self.end)]
        return Truncation(tuple(self.indices[i] for i in shown), self.indices[-1] + 1)

    def is_answered(self, place: int) -> bool:
        """Return whether the model or a tool produced rows between this candidate and the next one."""
        until = self.indices[place + 1] if place + 1 < self.end else self.indices[place] + 1
        return any(is_of_the_model(row) or row["role"] == "tool" for row in self._history[self.indices[place] : until])

    def step_at(self, place: int) -> tuple[int, int]:
        """Return the inseparable rows [begin, end) around a position."""
        after = bisect_right(self.cut_points, place)
        begin = self.cut_points[after - 1] if after else 0
        return begin, self.cut_points[after] if after < len(self.cut_points) else self.end


def truncate_history(history: MessageHistory, indices: Sequence[int], room: float) -> Truncation:
    """Return the truncation that shows the most rows within `room` tokens, or the smallest one if none fits.

    Every truncation shows the system rows, the user messages of the current task, and the last step until the model has
    answered it. A call with late results is shown with them if both are not too large.
    """
    if not indices:
        return Truncation((), 0)
    rows = _Candidates(history, indices)
    required, begin = _required(rows)
    optional = _optional(rows, begin, room * _OPTIONAL)
    for kept, steps in ((required | optional, _awaited_steps(rows, required)), (required, [])):
        if (cut := _first_fitting(rows, room, kept, steps)) is not None:
            return cut
    return rows.truncate(required, rows.cut_points[-1])


def _cut_points(rows: Sequence[Row], calls: Sequence[list[str]]) -> list[int]:
    """Return the positions that separate no tool call from its result; ascending, at least one."""
    known = {call_id for ids in calls for call_id in ids}
    points: list[int] = []
    waiting: set[str] = set()  # results whose call is further up
    for place in range(len(rows) - 1, -1, -1):
        if rows[place]["role"] == "tool" and rows[place].get("tool_call_id") in known:
            waiting.add(rows[place]["tool_call_id"])
        else:
            waiting.difference_update(calls[place])
        if not waiting:
            points.append(place)
    return points[::-1]


def _first_fitting(rows: _Candidates, room: float, kept: set[int], steps: Sequence[_Step]) -> Truncation | None:
    after = [0, *accumulate(reversed(rows.sizes))][::-1]
    before = [0, *accumulate(size if i in kept else 0 for i, size in enumerate(rows.sizes))]
    for place in rows.cut_points:
        awaited = [(step.begin, step.end) for step in steps if step.end <= place <= step.awaited_until]
        tokens = sum(sum(rows.sizes[slice(*step)]) for step in awaited)
        if tokens > room * _OPTIONAL:
            awaited, tokens = [], 0
        if after[place] + before[place] + tokens <= room:
            return rows.truncate(kept.union(*(range(*step) for step in awaited)), place)
    return None


def _required(rows: _Candidates) -> tuple[set[int], int]:
    """Return the rows that every view shows, and the start of the current task."""
    prompt = next((i for i in range(rows.end - 1, -1, -1) if is_prompt(rows.rows[i])), 0)
    begin = _begin_of_task(rows, prompt)
    required = {i for i, row in enumerate(rows.rows) if is_system(row) and not is_of_hook(row)}
    required |= {i for i in range(begin, rows.end) if is_from_user(rows.rows[i])}
    return required | _unanswered(rows), begin


def _begin_of_task(rows: _Candidates, prompt: int) -> int:
    """Return the start of the task: its prompt, or earlier rows that the model has not answered."""
    begin = prompt
    while begin > 0 and not rows.is_answered(begin - 1) and not is_prompt(rows.rows[begin - 1]):
        begin -= 1
    return begin


def _optional(rows: _Candidates, begin: int, room: float) -> set[int]:
    """Return optional rows within `room` tokens, the latest first: hook texts and unanswered prompts.

    Prompts whose answer is left out are not shown: they would look as if they were still open.
    """
    optional: set[int] = set()
    unanswered = True
    for place in range(rows.end - 1, -1, -1):
        row = rows.rows[place]
        of_a_hook = is_of_hook(row) and row["role"] != "assistant"
        if place < begin:
            unanswered = unanswered and not rows.is_answered(place)
        if of_a_hook or (place < begin and unanswered and is_from_user(row)):
            room -= rows.sizes[place]
            if room < 0:
                break
            optional.add(place)
    return optional


def _unanswered(rows: _Candidates) -> set[int]:
    """Return the results that the model has not answered yet, with their calls."""
    # If no row of the model is left, all results are unanswered.
    last = next((i for i in range(rows.end - 1, -1, -1) if is_of_the_model(rows.rows[i])), 0)
    results = {i for i in range(last, rows.end) if is_result(rows.rows[i])}
    return results.union(range(*rows.step_at(last))) if rows.calls[last] else results


def _awaited_steps(rows: _Candidates, required: set[int]) -> list[_Step]:
    """Return the steps with calls that have late results."""
    called_at: dict[str, int] = {}
    pending: dict[str, int] = {}
    awaited: dict[tuple[int, int], None] = {}  # ordered set of (position of the call, position of its late results)
    for place, row in enumerate(rows.rows):
        called_at.update(dict.fromkeys(rows.calls[place], place))
        metadata = metadata_of(row)
        if metadata.get("pending"):
            pending[str(row.get("tool_call_id"))] = called_at.get(str(row.get("tool_call_id")), place)
        elif is_prompt(row):
            pending.clear()  # a run waits for its calls: earlier pending calls get no result
        results = metadata.get("results")
        for call_id in results if isinstance(results, list) else ():
            call = pending.pop(call_id, called_at.get(call_id, place))
            awaited[call, rows.end if place in required else place] = None
    awaited.update(((call, rows.end), None) for call in pending.values())
    return [_Step(*rows.step_at(call), until) for call, until in awaited]


def truncated_rows(history: MessageHistory, shown: Sequence[int], excess: float) -> dict[int, Row]:
    """Return shortened forms of `shown` rows that save `excess` tokens in total, if possible.

    Results are shortened first, the oldest first, to a readable size and then to a mark; injected messages follow.
    Prompts, the last user message and the model's rows stay unchanged.
    """
    rows = history.rows
    results = [i for i in shown if is_result(rows[i])]
    from_users = [i for i in shown if is_from_user(rows[i])]
    injected = [i for i in from_users[:-1] if not is_prompt(rows[i])]
    short: dict[int, Row] = {}
    for indices, least in ((results, _READABLE_TOKENS), (results, 0), (injected, _READABLE_TOKENS)):
        for i in indices:
            if excess <= 0:
                return short
            size = estimate(short.get(i, rows[i]))
            row = _truncated_row(rows[i], max(least, int(size - excess) - _MARK_TOKENS))
            saved = size - estimate(row)
            if saved > 0 and MARK_END in row["content"]:
                short[i], excess = row, excess - saved
    return short


def _truncated_row(row: Row, tokens: int) -> Row:
    text = plain_text(row.get("content"))
    is_tools = row["role"] == "tool"
    least = 0 if is_tools else _USER_CHARS
    short = {**row, "content": truncated(text, tokens, least, by_items=not is_tools)}
    if "whole" in metadata_of(row):  # the whole text must not be stored with a view
        short["metadata"] = {key: value for key, value in metadata_of(row).items() if key != "whole"}
    return short


def truncated(text: str, tokens: int, least_chars: int = 0, *, by_items: bool = False) -> str:
    """Return the beginning and end of a text, about `tokens` long, with a mark between that states the missing size.

    `by_items` is passed to `truncate_middle`.
    """
    size = len(text.encode(errors="replace"))
    chars = max(int(len(text) * tokens * BYTES_PER_TOKEN / size) if size else 0, least_chars)
    return truncate_middle(text, chars, by_items=by_items)


def plain_text(content: Any) -> str:
    """Return the visible text of a row's content, without thinking and calls."""
    if isinstance(content, list):
        return "\n".join(text for block in content if (text := _block_text(block)))
    if isinstance(content, str):
        return content
    return "" if content is None else as_json(content)


def _block_text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image"}:
            return f"[… an image is {MARK_END}"
        case {"type": "tool_result", "output": output}:
            return plain_text(output) if isinstance(output, str) or output is None else as_json(output)
        case {"type": "thinking" | "redacted_thinking" | "reasoning" | "tool_call"}:
            return ""
    return as_json(block)
