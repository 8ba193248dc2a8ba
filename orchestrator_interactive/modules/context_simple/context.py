"""The context manager: it keeps the history and decides when to show a smaller view."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import structlog
from pydantic import AliasChoices, Field

from orchestrator_interactive.config import Options
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.loop.outcome import usage_totals
from orchestrator_interactive.modules.context_simple.history import MessageHistory, checked_row, copy_of, own_row
from orchestrator_interactive.modules.context_simple.summary import Summariser
from orchestrator_interactive.modules.context_simple.views import (
    ContextSummary,
    Draft,
    full_view,
    view_from_dict,
    view_to_dict,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from orchestrator_interactive.modules.context_simple.views import ContextView

    Row = dict[str, Any]
    Announce = Callable[[str, dict[str, Any]], Awaitable[object]]

log = structlog.get_logger(__name__)

_SAFETY_MARGIN_TOKENS = 1000

_WITHOUT_EFFECT = """
    auto_compact compaction_notice_enabled compaction_notice_min_level compaction_notice_token_reserve
    compaction_notice_verbosity compaction_strategy max_tool_result_bytes output_reserve_fraction protected_recent
    protected_tool_results summarization_model summarization_prompt_path summarization_timeout_s summary_trigger
    target_usage token_meter truncate_chars
"""


class ContextOptions(Options):
    """Configuration of `context-simple`; sizes are in estimated tokens.

    Args:
        system_prompt: first row of every request.
        max_tokens: budget of a request if the provider does not report its window.
        compaction_threshold: fraction of the budget above which a request is compacted.
        strategy: what replaces the rows that are left out: a short note, or a summary by the model.
        summary_max_tokens: maximum length of a summary.
        summary_timeout_s: time limit for a summary; after it, the note is used.
    """

    without_effect: ClassVar[frozenset[str]] = frozenset(_WITHOUT_EFFECT.split())

    system_prompt: str | None = None
    max_tokens: int = Field(default=100_000, gt=0)
    compaction_threshold: float = Field(
        0.8, gt=0, le=1, validation_alias=AliasChoices("compaction_threshold", "compact_threshold")
    )
    strategy: Literal["drop", "summary"] = "drop"
    summary_max_tokens: int = Field(default=2_000, gt=0)
    summary_timeout_s: float = Field(default=60, gt=0)


class SimpleContext:
    """In-memory implementation of the ContextManager contract.

    The history is append-only. A request above its budget shows a view: system rows, a note or a summary of the rows
    left out, the user messages of the current task, and the most recent rows. The beginning of a view stays the same
    while it fits, so that the provider's prompt cache stays valid. `announce` emits the events of compaction.
    """

    def __init__(self, options: ContextOptions, announce: Announce) -> None:
        self._options = options
        self._announce = announce
        prompt = options.system_prompt
        self._everything = full_view([{"role": "system", "content": prompt}] if prompt else [])
        self._summariser = Summariser(options.summary_timeout_s)
        self._compacting = asyncio.Lock()
        self._history = MessageHistory([])
        self._view: ContextView = self._everything
        self._views = 0
        self._summary: ContextSummary | None = None

    async def add_message(self, message: Row) -> None:
        """Append a row.

        Raises:
            ValueError: the row has no role.
        """
        await self.add_messages([message])

    async def add_messages(self, messages: Iterable[Row]) -> None:
        """Append all rows, or none.

        Raises:
            ValueError: as in `add_message`.
        """
        for row in [own_row(checked_row(each)) for each in messages]:
            self.append(row)

    def append(self, row: Row) -> None:
        """Append a checked row without a copy; the context owns it from now on."""
        self._history.append(row)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any | None = None) -> list[Row]:
        """Return the rows for the model, within the budget unless the last step and the current task exceed it.

        The list is a copy; its rows are not. The strategy "summary" may call the provider.
        """
        limit = self._budget(token_budget, provider) * self._options.compaction_threshold
        history, view = self._history, self._view
        if self._everything.tokens(history) <= limit:  # also after a request with a smaller budget
            view = self._everything
            self._show(view)
        elif view.tokens(history) > limit:
            view = await self._smaller_view(limit, provider)
            if history is not self._history:  # it was replaced in the meantime
                return await self.get_messages_for_request(token_budget, provider)
        return view.rows(history)

    async def get_messages(self) -> list[Row]:
        """Return a copy of the whole history."""
        return [copy_of(row) for row in self._history.rows]

    async def set_messages(self, messages: Iterable[Row]) -> None:
        """Replace the history, to resume a session."""
        self.replace(map(own_row, messages))

    def replace(self, rows: Iterable[Row]) -> None:
        """Replace the history by checked rows without copies; the context owns them from now on."""
        self._history, self._summary = MessageHistory(rows), None
        self._show(self._everything)

    async def clear(self) -> None:
        await self.set_messages([])

    def compress(self) -> None:
        """Compress the history in memory until its next use."""
        self._history.compress()

    @property
    def views(self) -> int:
        """Number of times that the view has changed."""
        return self._views

    def view_to_dict(self) -> dict[str, Any] | None:
        """Return the view as JSON values; `None` if it shows the whole history."""
        return None if self._view is self._everything else view_to_dict(self._view, self._summary)

    def restore_view(self, view: dict[str, Any] | None) -> None:
        """Restore a view from `view_to_dict` for the same history, which may have grown since."""
        try:
            if view is not None:
                shown, self._summary = view_from_dict(view, self._history, self._everything.preface)
                self._show(shown)
        except (LookupError, TypeError):
            log.exception("context.view_unreadable")

    def _show(self, view: ContextView) -> None:
        if view is not self._view:
            self._view, self._views = view, self._views + 1

    def _budget(self, token_budget: int | None, provider: Any | None) -> int:
        if token_budget is not None:
            return token_budget
        defaults = _defaults_of(provider)
        window, output = defaults.get("context_window"), defaults.get("max_output_tokens")
        return window - output - _SAFETY_MARGIN_TOKENS if window and output else self._options.max_tokens

    async def _smaller_view(self, limit: float, provider: Any | None) -> ContextView:
        async with self._compacting:
            history, before = self._history, self._view
            if before.tokens(history) <= limit:  # another request has already compacted
                return before
            draft = Draft.of(history, before, limit, self._summary, self._max_summary_tokens())
            if draft.view().tokens(history) >= before.tokens(history):
                return before
            request = draft.summary_request() if provider is not None and self._summariser.is_ready() else None
            return await self._compact(draft, provider, request)

    def _max_summary_tokens(self) -> int:
        return self._options.summary_max_tokens if self._options.strategy == "summary" else 0

    async def _compact(self, draft: Draft, provider: Any | None, request: ChatRequest | None) -> ContextView:
        """Make the draft's view current; emit both events in any case."""
        event_data: dict[str, Any] = {"strategy": "drop" if request is None else "summary"}
        summary, view = self._summary, draft.view()
        try:
            await self._emit(events.CONTEXT_PRE_COMPACT, event_data)
            if request is not None:
                text, usage = await self._summariser.ask(provider, request)
                if usage is not None:
                    event_data["usage"] = usage_totals(usage).to_dict()
                if text:
                    summary, view = draft.with_summary(text)
                else:
                    event_data["strategy"] = "drop"
            if self._history is draft.history:
                self._summary = summary
                self._show(view)
        finally:
            await self._emit(events.CONTEXT_POST_COMPACT, event_data)
        return view

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        await self._announce(event, {**self._view.size(self._history), **data})


def _defaults_of(provider: Any | None) -> dict[str, Any]:
    if provider is None:
        return {}
    with ErrorBoundary(log, "context.window_unknown"):
        return provider.get_info().defaults or {}
    return {}
