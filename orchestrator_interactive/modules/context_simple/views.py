"""What a request shows of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.context_simple.cutting import cut_for
from orchestrator_interactive.modules.context_simple.history import is_of_a_hook, is_system
from orchestrator_interactive.modules.context_simple.shortening import shortened, shortened_rows
from orchestrator_interactive.modules.context_simple.summarising import summary_request
from orchestrator_interactive.transcript.framing import LEFT_OUT_PREFIX, SUMMARY_PREFIX, indented
from orchestrator_interactive.transcript.rows import LEFT_OUT
from orchestrator_interactive.transcript.tokens import estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from orchestrator_interactive.modules.context_simple.cutting import Truncation
    from orchestrator_interactive.modules.context_simple.history import MessageHistory

    Row = dict[str, Any]

_COMPACT_TO = 0.75  # of the limit: a view that has shrunk rests for a while
_MOST_OF_A_VIEW = 0.25  # that a summary takes, of a small one too
_LEAST_FOR_A_SUMMARY = 50
_NOTE_TOKENS = 50


@dataclass(frozen=True, slots=True)
class ContextView:
    """A `beginning` as it was made, then every row of the history from `since` on.

    The beginning stays the same, byte for byte, while the conversation goes on.

    Args:
        preface: the rows that it begins with, and that are not of the history.
        beginning: the preface, a note of what is left out, and the rows that are `shown`; those that are as in the
            history, by their index there.
        shown: the indices of these in the history.
        since: the index of the first row behind the beginning.
        saved: how many tokens smaller the view is than the history.
    """

    preface: tuple[Row, ...]
    beginning: tuple[Row | int, ...]
    shown: tuple[int, ...]
    since: int
    saved: int

    def rows(self, history: MessageHistory) -> list[Row]:
        """The rows, in a fresh list."""
        rows = history.rows
        shown = rows[self.since :]
        shown[:0] = [rows[row] if isinstance(row, int) else row for row in self.beginning]
        return shown

    def indices(self, history: MessageHistory) -> list[int]:
        """The indices of all rows of the history that it shows."""
        return [*self.shown, *range(self.since, len(history.rows))]

    def tokens(self, history: MessageHistory) -> int:
        return history.tokens - self.saved

    def size(self, history: MessageHistory) -> dict[str, int]:
        """What the events of a compaction tell of it."""
        messages = len(self.beginning) + len(history.rows) - self.since
        return {"message_count": messages, "token_count": self.tokens(history)}


def whole_view(preface: Sequence[Row]) -> ContextView:
    return ContextView(tuple(preface), tuple(preface), (), 0, -sum(map(estimate, preface)))


@dataclass(frozen=True, slots=True)
class ContextSummary:
    """What the model said of the rows before `until`."""

    text: str
    until: int


def written(view: ContextView, summary: ContextSummary | None) -> dict[str, Any]:
    """A view, as JSON knows it."""
    rows = list(view.beginning[len(view.preface) :])
    told = {"text": summary.text, "until": summary.until} if summary else None
    return {"rows": rows, "shown": list(view.shown), "since": view.since, "summary": told}


def read(
    told: dict[str, Any], history: MessageHistory, preface: Sequence[Row]
) -> tuple[ContextView, ContextSummary | None]:
    """The view that was `written` of the beginning of this history.

    Raises:
        LookupError, TypeError: it is none of this history.
    """
    rows = [*preface, *told["rows"]]
    saved = sum(history.sizes[: told["since"]]) - _tokens(rows, history)
    summary = ContextSummary(**told["summary"]) if told["summary"] else None
    return ContextView(tuple(preface), tuple(rows), tuple(told["shown"]), told["since"], saved), summary


@dataclass(frozen=True, slots=True)
class Draft:
    """A smaller view in the making: a part of the one before it, so that no cut costs more than a window is large.

    Args:
        before: the view that has become too large.
        limit: what a request may have, in tokens.
        cut: which rows it shows.
        short: those of them that it shows shortened.
        summary: the one that there is already.
        most: how long a summary may be, in tokens; 0: none is wanted.
    """

    history: MessageHistory
    before: ContextView
    limit: float
    cut: Truncation
    short: dict[int, Row]
    summary: ContextSummary | None
    most: int

    @classmethod
    def of(
        cls, history: MessageHistory, before: ContextView, limit: float, summary: ContextSummary | None, most: int
    ) -> Draft:
        """The draft for a limit; `most` is for a summary, which gets less where there is little room."""
        target = limit * _COMPACT_TO
        most = min(most, int(target * _MOST_OF_A_VIEW))
        most = most if most >= _LEAST_FOR_A_SUMMARY else 0
        beside = sum(map(estimate, before.preface)) + most + _NOTE_TOKENS
        cut = cut_for(history, before.indices(history), target - beside)
        tokens = sum(history.sizes[i] for i in cut.shown)
        fits = tokens <= limit - beside
        short = {} if fits else shortened_rows(history, cut.shown, tokens - (target - beside))
        return cls(history, before, limit, cut, short, summary, most)

    def view(self) -> ContextView:
        return self._view(self.summary)

    def with_summary(self, text: str) -> tuple[ContextSummary, ContextView]:
        """The new summary, which tells of everything that is left out, and the view with it."""
        summary = ContextSummary(text, self.cut.whole_from)
        return summary, self._view(summary)

    def summary_request(self) -> ChatRequest | None:
        """The request for a summary, where one is wanted, fits, and is shorter than what it is of."""
        since, earlier = (self.summary.until, self.summary.text) if self.summary else (0, None)
        until, shown = self.cut.whole_from, set(self.cut.shown)
        left_out = sum(self.history.sizes[i] for i in range(since, until) if i not in shown)
        if not 0 < self.most < left_out or self.view().tokens(self.history) + self.most > self.limit:
            return None
        rows = [row for row in self.history.rows[since:until] if not is_system(row) or is_of_a_hook(row)]
        return summary_request(rows, earlier, self.limit, self.most)

    def _view(self, summary: ContextSummary | None) -> ContextView:
        history, preface, shown = self.history, self.before.preface, self.cut.shown
        rows: list[Row | int] = [*preface, *(self.short.get(i, i) for i in shown)]
        note = _note(self.cut, summary, self.most)
        if note is not None:
            # Before everything but the system rows, so that it is never the last word of the user.
            whole = (history.rows[row] if isinstance(row, int) else row for row in rows)
            rows.insert(next((i for i, row in enumerate(whole) if not is_system(row)), len(rows)), note)
        saved = sum(history.sizes[: self.cut.end]) - _tokens(rows, history)
        return ContextView(preface, tuple(rows), shown, self.cut.end, saved)


def _tokens(rows: Iterable[Row | int], history: MessageHistory) -> int:
    return sum(history.sizes[row] if isinstance(row, int) else estimate(row) for row in rows)


def _note(cut: Truncation, summary: ContextSummary | None, most_tokens: int) -> Row | None:
    """The user row in the place of what a cut leaves out: its summary, and how much that does not tell of."""
    left_out = cut.left_out()
    if not left_out:
        return None
    parts = []
    untold = left_out
    if summary is not None and most_tokens:
        parts.append(f"{SUMMARY_PREFIX} {indented(shortened(summary.text, most_tokens))}]")
        untold = cut.left_out(since=summary.until)
    if untold:
        which = "messages after these" if parts else "earlier messages of this conversation"
        parts.append(f"{LEFT_OUT_PREFIX}{untold} {which} are not shown here. What was done in them is done.]")
    return {"role": "user", "content": "\n".join(parts), "metadata": {LEFT_OUT: left_out}}
