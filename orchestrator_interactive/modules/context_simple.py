"""`context-simple`: a conversation in memory, with a stable, compacted view where it outgrows the model's window."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import Field

from orchestrator_interactive.injection import NOTICE_PREFIX, PREFIX
from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.interop import at_home
from orchestrator_interactive.options import Options, read
from orchestrator_interactive.rows import call_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.hooks import HookRegistry

    Row = dict[str, Any]

log = structlog.get_logger(__name__)

_SAFETY_MARGIN_TOKENS = 1000
_COMPACT_TO = 0.75  # of the threshold: with 0.8 the view shrinks to 60 % of the budget, and then rests for a while


class ContextOptions(Options):
    """Configuration of `context-simple`; sizes are in estimated tokens."""

    system_prompt: str | None = None
    max_tokens: int = Field(default=100_000, gt=0)
    compaction_threshold: float = Field(default=0.8, gt=0, le=1)


@dataclass(frozen=True, slots=True)
class _View:
    """How much of the history a request shows: `head`, then every row from `cut` on."""

    head: tuple[Row, ...] = ()
    head_tokens: int = 0
    cut: int = 0


_EVERYTHING = _View()


class SimpleContext:
    """The contract's ContextManager, in memory.

    The history is only ever added to. A request that would outgrow its budget shows a view of it: system rows, a
    notice, what the user asked for in the current task, and the most recent rows. The view keeps its beginning for as
    long as it fits, so that the provider's prompt cache does too.
    """

    def __init__(self, options: ContextOptions, hooks: HookRegistry) -> None:
        self._options = options
        self._hooks = hooks
        prompt = options.system_prompt
        self._preface: tuple[Row, ...] = ({"role": "system", "content": prompt},) if prompt else ()
        self._preface_tokens = sum(map(_estimate, self._preface))
        self._start([])

    async def add_message(self, message: Row) -> None:
        """Append a row.

        Raises:
            ValueError: it has no role.
        """
        if not message.get("role"):
            raise ValueError("A message needs a 'role': user, assistant, tool or system.")
        self._append(message)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any | None = None) -> list[Row]:
        """What the model is to see, within the budget as far as the last step and the current task allow.

        The list is the caller's; its rows are the context's own, so that a long history costs no copying.
        """
        limit = self._budget(token_budget, provider) * self._options.compaction_threshold
        await self._adapt_view(limit)
        view = self._view
        return [*self._preface, *view.head, *self._rows[view.cut :]]

    async def get_messages(self) -> list[Row]:
        """The whole history."""
        return [_copied(row) for row in self._rows]

    async def set_messages(self, messages: Iterable[Row]) -> None:
        """Replace the history, to resume a session."""
        self._start(messages)

    async def clear(self) -> None:
        self._start([])

    def _start(self, rows: Iterable[Row]) -> None:
        self._rows: list[Row] = []
        self._tokens_before = [0]  # at i: the estimated tokens of all rows before row i; each row is counted once
        self._view = _EVERYTHING
        for row in rows:
            self._append(row)

    def _append(self, row: Row) -> None:
        self._rows.append(_copied(row))
        self._tokens_before.append(self._tokens_before[-1] + _estimate(row))

    def _budget(self, token_budget: int | None, provider: Any | None) -> int:
        if token_budget is not None:
            return token_budget
        defaults = _defaults_of(provider)
        window, output = defaults.get("context_window"), defaults.get("max_output_tokens")
        return window - output - _SAFETY_MARGIN_TOKENS if window and output else self._options.max_tokens

    def _tokens_of(self, view: _View) -> int:
        return self._preface_tokens + view.head_tokens + self._tokens_before[-1] - self._tokens_before[view.cut]

    async def _adapt_view(self, limit: float) -> None:
        if self._tokens_of(_EVERYTHING) <= limit:  # a larger budget than the one before
            self._view = _EVERYTHING
            return
        if self._tokens_of(self._view) <= limit:
            return
        view = self._compacted(limit * _COMPACT_TO)
        if view.cut <= self._view.cut:
            return
        await self._hooks.emit(events.CONTEXT_PRE_COMPACT, self._size_of(self._view))
        self._view = view
        await self._hooks.emit(events.CONTEXT_POST_COMPACT, self._size_of(view))

    def _size_of(self, view: _View) -> dict[str, int]:
        shown = len(self._preface) + len(view.head) + len(self._rows) - view.cut
        return {"message_count": shown, "token_count": self._tokens_of(view)}

    def _compacted(self, target: float) -> _View:
        lasting = self._lasting(target / 2)
        room = target - self._preface_tokens - sum(map(self._tokens_at, lasting)) - _estimate(_notice(len(self._rows)))
        cut = self._cut_for(room)
        kept = [i for i in lasting if i < cut]
        head = _head([self._rows[i] for i in kept], omitted=cut - len(kept))
        return _View(head, sum(map(_estimate, head)), cut) if cut > len(kept) else _EVERYTHING

    def _lasting(self, most_tokens: float) -> list[int]:
        """Indices of the rows that every view shows: system rows, and what the user wants in the current task.

        Steering messages last like the prompt they belong to, unless together they are larger than `most_tokens`.
        """
        system = [i for i, row in enumerate(self._rows) if row["role"] in {"system", "developer"}]
        users = [i for i, row in enumerate(self._rows) if row["role"] == "user"]
        begun = max((i for i in users if begins_a_task(self._rows[i])), default=None)
        if begun is None:
            return system
        steered = [i for i in users if i >= begun]
        fits = sum(map(self._tokens_at, steered)) <= most_tokens
        return sorted({*system, *(steered if fits else [begun])})

    def _tokens_at(self, index: int) -> int:
        return self._tokens_before[index + 1] - self._tokens_before[index]

    def _cut_for(self, room: float) -> int:
        """The earliest place to cut so that the rows after it fit; at least the last unit stays."""
        places = _cut_places(self._rows)
        fitting = (i for i in places if self._tokens_before[-1] - self._tokens_before[i] <= room)
        return next(fitting, places[-1] if places else 0)


def _defaults_of(provider: Any | None) -> dict[str, Any]:
    if provider is None:
        return {}
    try:
        return provider.get_info().defaults or {}
    except Exception:  # a provider that cannot say how large its window is may not take the run down
        log.exception("context.window_unknown")
        return {}


def begins_a_task(row: Row) -> bool:
    """Whether a user row is a prompt, rather than something said or reported while the agent was at work."""
    content = row.get("content")
    return not (isinstance(content, str) and content.startswith((PREFIX, NOTICE_PREFIX)))


def _cut_places(rows: Sequence[Row]) -> list[int]:
    """Where the history may be cut: between no tool call and its result. Ascending."""
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


def _head(kept: list[Row], omitted: int) -> tuple[Row, ...]:
    # The notice stands before the user's task, so that it is never the last word of the user.
    first_of_user = next((i for i, row in enumerate(kept) if row["role"] == "user"), len(kept))
    return (*kept[:first_of_user], _notice(omitted), *kept[first_of_user:])


def _notice(omitted: int) -> Row:
    text = f"[To save space, {omitted} earlier messages of this conversation are not shown here.]"
    return {"role": "user", "content": text}


def _estimate(row: Row) -> int:
    """Tokens of a row, roughly: a quarter of its bytes as JSON. Bytes, since scripts beyond ASCII take more tokens."""
    return len(json.dumps(row, ensure_ascii=False, default=str).encode(errors="replace")) // 4 + 1


def _copied(value: Any) -> Any:
    match value:
        case dict():
            return {key: _copied(item) for key, item in value.items()}
        case list():
            return [_copied(item) for item in value]
        case _:
            return value


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> SimpleContext:
    """Mount the context.

    Raises:
        ValueError: the configuration has an unknown option or a value out of range.
    """
    coordinator = at_home(coordinator)
    options = read(ContextOptions, config, "context-simple")
    coordinator.register_contributor(
        "observability.events", "context-simple", lambda: [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    )
    context = SimpleContext(options, coordinator.hooks)
    await coordinator.mount("context", context)
    return context
