"""The context: what it keeps, and when it makes a smaller view of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import structlog
from pydantic import Field

from orchestrator_interactive.config import Options
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.loop.usage import spent_on
from orchestrator_interactive.modules.context_simple.history import MessageHistory, copied
from orchestrator_interactive.modules.context_simple.summarising import Summariser
from orchestrator_interactive.modules.context_simple.views import ContextSummary, Draft, read, whole_view, written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from orchestrator_interactive.kernel.hooks import HookRegistry
    from orchestrator_interactive.modules.context_simple.views import ContextView

    Row = dict[str, Any]

log = structlog.get_logger(__name__)

_SAFETY_MARGIN_TOKENS = 1000


class ContextOptions(Options):
    """Configuration of `context-simple`; sizes are in estimated tokens.

    Args:
        system_prompt: leads every request.
        max_tokens: budget of a request where the provider does not tell its window.
        compaction_threshold: the part of the budget past which a request shows less than everything.
        strategy: what stands in the place of what is left out: a note of it, or a summary that the model makes.
        summary_max_tokens: how long a summary may be.
        summary_timeout_s: how long the model may take for one; after that it goes without.
    """

    system_prompt: str | None = None
    max_tokens: int = Field(default=100_000, gt=0)
    compaction_threshold: float = Field(default=0.8, gt=0, le=1)
    strategy: Literal["drop", "summary"] = "drop"
    summary_max_tokens: int = Field(default=2_000, gt=0)
    summary_timeout_s: float = Field(default=60, gt=0)


class SimpleContext:
    """The contract's ContextManager, in memory.

    The history is only ever added to. A request that would outgrow its budget shows a view of it: system rows, a note
    or a summary of what is left out, what people want in the current task, and the most recent rows. The view keeps
    its beginning for as long as it fits, so that the provider's prompt cache does too.
    """

    def __init__(self, options: ContextOptions, hooks: HookRegistry) -> None:
        self._options = options
        self._hooks = hooks
        prompt = options.system_prompt
        self._everything = whole_view([{"role": "system", "content": prompt}] if prompt else [])
        self._summariser = Summariser(options.summary_timeout_s)
        self._compacting = asyncio.Lock()
        self._history = MessageHistory([])
        self._view: ContextView = self._everything
        self._views = 0
        self._summary: ContextSummary | None = None

    async def add_message(self, message: Row) -> None:
        """Append a row.

        Raises:
            ValueError: it has no role.
        """
        if not message.get("role"):
            raise ValueError("A message needs a 'role': user, assistant, tool or system.")
        self._history.append(message)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any | None = None) -> list[Row]:
        """What the model is to see, within the budget as far as the last step and the current task allow.

        The list is the caller's; its rows are the context's own, so that a long history costs no copying. With the
        strategy "summary" the provider may be asked on the way.
        """
        limit = self._budget(token_budget, provider) * self._options.compaction_threshold
        history, view = self._history, self._view
        if self._everything.tokens(history) <= limit:  # also after a request with a smaller budget
            view = self._everything
            self._show(view)
        elif view.tokens(history) > limit:
            view = await self._smaller_view(limit, provider)
            if history is not self._history:  # it was set anew meanwhile
                return await self.get_messages_for_request(token_budget, provider)
        return view.rows(history)

    async def get_messages(self) -> list[Row]:
        """The whole history."""
        return [copied(row) for row in self._history.rows]

    async def set_messages(self, messages: Iterable[Row]) -> None:
        """Replace the history, to resume a session."""
        self._history, self._summary = MessageHistory(messages), None
        self._show(self._everything)

    async def clear(self) -> None:
        await self.set_messages([])

    def rest(self) -> None:
        """Take up little memory until the history is asked for again."""
        self._history.pack()

    @property
    def views(self) -> int:
        """How often requests have come to show something else of the history."""
        return self._views

    def written_view(self) -> dict[str, Any] | None:
        """The view as JSON knows it; `None`: it shows everything."""
        return None if self._view is self._everything else written(self._view, self._summary)

    def take_up(self, view: dict[str, Any] | None) -> None:
        """Go on with a view that was written of the beginning of this history."""
        try:
            if view is not None:
                shown, self._summary = read(view, self._history, self._everything.preface)
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
            if before.tokens(history) <= limit:  # another request has seen to it
                return before
            draft = Draft.of(history, before, limit, self._summary, self._most_for_a_summary())
            if draft.view().tokens(history) >= before.tokens(history):
                return before
            request = draft.summary_request() if provider is not None and self._summariser.is_ready() else None
            return await self._compact(draft, provider, request)

    def _most_for_a_summary(self) -> int:
        return self._options.summary_max_tokens if self._options.strategy == "summary" else 0

    async def _compact(self, draft: Draft, provider: Any | None, request: ChatRequest | None) -> ContextView:
        """Make the view of the draft the current one, and tell of it: whatever happens, both events come."""
        told: dict[str, Any] = {"strategy": "drop" if request is None else "summary"}
        summary, view = self._summary, draft.view()
        try:
            await self._tell(events.CONTEXT_PRE_COMPACT, told)
            if request is not None:
                text, usage = await self._summariser.ask(provider, request)
                if usage is not None:
                    told["usage"] = spent_on(usage).told()
                if text:
                    summary, view = draft.with_summary(text)
                else:
                    told["strategy"] = "drop"
            if self._history is draft.history:
                self._summary = summary
                self._show(view)
        finally:
            await self._tell(events.CONTEXT_POST_COMPACT, told)
        return view

    async def _tell(self, event: str, told: dict[str, Any]) -> None:
        await self._hooks.emit(event, {**self._view.size(self._history), **told})


def _defaults_of(provider: Any | None) -> dict[str, Any]:
    if provider is None:
        return {}
    try:
        return provider.get_info().defaults or {}
    except Exception:  # a provider that cannot say how large its window is may not take the run down
        log.exception("context.window_unknown")
        return {}
