"""The part of a conversation that a request shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.context_simple.history import is_system
from orchestrator_interactive.modules.context_simple.summary import summary_request
from orchestrator_interactive.modules.context_simple.truncation import truncate_history, truncated, truncated_rows
from orchestrator_interactive.transcript.framing import LEFT_OUT_PREFIX, SUMMARY_PREFIX, indented
from orchestrator_interactive.transcript.rows import LEFT_OUT, estimate, is_of_hook

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from orchestrator_interactive.modules.context_simple.history import MessageHistory
    from orchestrator_interactive.modules.context_simple.truncation import Truncation

    Row = dict[str, Any]

_COMPACT_TO = 0.75  # of the limit, so that the next compaction is not needed soon
_SUMMARY_SHARE = 0.25  # maximum part of a view for the summary
_MIN_SUMMARY_TOKENS = 50
_NOTE_TOKENS = 50


@dataclass(frozen=True, slots=True)
class ContextView:
    """A fixed `beginning`, then every row of the history from `since` on.

    The beginning stays identical, byte for byte, while the conversation grows.

    Args:
        preface: rows at the start that are not in the history.
        beginning: the preface, a note about the rows left out, and the `shown` rows; unchanged rows as their index in
            the history.
        shown: indices of the shown rows in the history.
        since: index of the first row after the beginning.
        saved: number of tokens that the view is smaller than the history.
    """

    preface: tuple[Row, ...]
    beginning: tuple[Row | int, ...]
    shown: tuple[int, ...]
    since: int
    saved: int

    def rows(self, history: MessageHistory) -> list[Row]:
        """Return the rows in a new list."""
        rows = history.rows
        shown = rows[self.since :]
        shown[:0] = [rows[row] if isinstance(row, int) else row for row in self.beginning]
        return shown

    def indices(self, history: MessageHistory) -> list[int]:
        """Return the history indices of all visible rows."""
        return [*self.shown, *range(self.since, len(history.rows))]

    def tokens(self, history: MessageHistory) -> int:
        return history.tokens - self.saved

    def size(self, history: MessageHistory) -> dict[str, int]:
        """Return the fields for the compaction events."""
        messages = len(self.beginning) + len(history.rows) - self.since
        return {"message_count": messages, "token_count": self.tokens(history)}


def full_view(preface: Sequence[Row]) -> ContextView:
    return ContextView(tuple(preface), tuple(preface), (), 0, -sum(map(estimate, preface)))


@dataclass(frozen=True, slots=True)
class ContextSummary:
    """The model's summary of the rows before `until`."""

    text: str
    until: int


def view_to_dict(view: ContextView, summary: ContextSummary | None) -> dict[str, Any]:
    """Return a view as JSON values."""
    rows = list(view.beginning[len(view.preface) :])
    summary_data = {"text": summary.text, "until": summary.until} if summary else None
    return {"rows": rows, "shown": list(view.shown), "since": view.since, "summary": summary_data}


def view_from_dict(
    data: dict[str, Any], history: MessageHistory, preface: Sequence[Row]
) -> tuple[ContextView, ContextSummary | None]:
    """Rebuild a view from the result of `view_to_dict` for the same history.

    Raises:
        LookupError, TypeError: the view does not match this history.
    """
    rows = [*preface, *data["rows"]]
    saved = sum(history.sizes[: data["since"]]) - _tokens(rows, history)
    summary = ContextSummary(**data["summary"]) if data["summary"] else None
    return ContextView(tuple(preface), tuple(rows), tuple(data["shown"]), data["since"], saved), summary


@dataclass(frozen=True, slots=True)
class Draft:
    """A smaller view, selected from the previous one so that the cost does not grow with the history.

    Args:
        before: the view that has become too large.
        limit: maximum size of a request, in tokens.
        truncation: the rows to show.
        truncated: shortened forms of some of the rows.
        summary: the existing summary, if any.
        max_tokens: maximum length of a summary in tokens; 0 for no summary.
    """

    history: MessageHistory
    before: ContextView
    limit: float
    truncation: Truncation
    truncated: dict[int, Row]
    summary: ContextSummary | None
    max_tokens: int

    @classmethod
    def of(
        cls, history: MessageHistory, before: ContextView, limit: float, summary: ContextSummary | None, max_tokens: int
    ) -> Draft:
        """Build the draft for a limit; `max_tokens` is reduced if there is little room."""
        target = limit * _COMPACT_TO
        max_tokens = min(max_tokens, int(target * _SUMMARY_SHARE))
        max_tokens = max_tokens if max_tokens >= _MIN_SUMMARY_TOKENS else 0
        reserved = sum(map(estimate, before.preface)) + max_tokens + _NOTE_TOKENS
        cut = truncate_history(history, before.indices(history), target - reserved)
        tokens = sum(history.sizes[i] for i in cut.shown)
        fits = tokens <= limit - reserved
        short = {} if fits else truncated_rows(history, cut.shown, tokens - (target - reserved))
        return cls(history, before, limit, cut, short, summary, max_tokens)

    def view(self) -> ContextView:
        return self._view(self.summary)

    def with_summary(self, text: str) -> tuple[ContextSummary, ContextView]:
        """Return the new summary, which covers all rows left out, and the view with it."""
        summary = ContextSummary(text, self.truncation.untruncated_from)
        return summary, self._view(summary)

    def summary_request(self) -> ChatRequest | None:
        """Return the request for a summary; `None` if none is wanted, it does not fit, or it would save nothing."""
        since, earlier = (self.summary.until, self.summary.text) if self.summary else (0, None)
        until, shown = self.truncation.untruncated_from, set(self.truncation.shown)
        left_out = sum(self.history.sizes[i] for i in range(since, until) if i not in shown)
        if not 0 < self.max_tokens < left_out or self.view().tokens(self.history) + self.max_tokens > self.limit:
            return None
        rows = [row for row in self.history.rows[since:until] if not is_system(row) or is_of_hook(row)]
        return summary_request(rows, earlier, self.limit, self.max_tokens)

    def _view(self, summary: ContextSummary | None) -> ContextView:
        history, preface, shown = self.history, self.before.preface, self.truncation.shown
        rows: list[Row | int] = [*preface, *(self.truncated.get(i, i) for i in shown)]
        note = _note(self.truncation, summary, self.max_tokens)
        if note is not None:
            # Directly after the system rows, so that it is never the user's last message.
            whole = (history.rows[row] if isinstance(row, int) else row for row in rows)
            rows.insert(next((i for i, row in enumerate(whole) if not is_system(row)), len(rows)), note)
        saved = sum(history.sizes[: self.truncation.end]) - _tokens(rows, history)
        return ContextView(preface, tuple(rows), shown, self.truncation.end, saved)


def _tokens(rows: Iterable[Row | int], history: MessageHistory) -> int:
    return sum(history.sizes[row] if isinstance(row, int) else estimate(row) for row in rows)


def _note(truncation: Truncation, summary: ContextSummary | None, max_tokens: int) -> Row | None:
    """Build the user row for the rows left out: their summary, and the number of rows that it does not cover."""
    left_out = truncation.left_out()
    if not left_out:
        return None
    parts = []
    uncovered = left_out
    if summary is not None and max_tokens:
        parts.append(f"{SUMMARY_PREFIX} {indented(truncated(summary.text, max_tokens))}]")
        uncovered = truncation.left_out(since=summary.until)
    if uncovered:
        which = "messages after these" if parts else "earlier messages of this conversation"
        parts.append(f"{LEFT_OUT_PREFIX}{uncovered} {which} are not shown here. What was done in them is done.]")
    return {"role": "user", "content": "\n".join(parts), "metadata": {LEFT_OUT: left_out}}
