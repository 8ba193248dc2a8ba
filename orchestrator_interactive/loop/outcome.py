"""What a run leaves: its outcome, its usage, and the state that the orchestrator keeps for the next one."""

from __future__ import annotations

import asyncio
from array import array
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from operator import add
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import ref

from orchestrator_interactive.transcript.rows import call_ids, marked, metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator_interactive.kernel.contracts.messages import Usage
    from orchestrator_interactive.kernel.contracts.models import ContextInjection
    from orchestrator_interactive.transcript.transcript import Transcript

Row = dict[str, Any]
RunStatus = Literal["success", "incomplete", "cancelled", "suspended", "error"]

# Lifetime of the message cache after a run, in seconds: with more than _MANY_ROWS rows, and with fewer.
_MANY_ROWS = 100
_LONG_LIFETIME_S, _SHORT_LIFETIME_S = 60.0, 1.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run; `reason` and `detail` explain the status "incomplete"."""

    text: str
    status: RunStatus
    reason: str | None = None
    detail: str | None = None


SUSPENDED = RunOutcome("", "suspended")


class UsageTotals(NamedTuple):
    """Sums of tokens and cost. `cost_usd` sums the calls with a known cost; `None`: no call has one."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: Decimal | None = None

    def plus(self, other: UsageTotals) -> UsageTotals:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return UsageTotals._make((*map(add, self[:-1], other[:-1]), sum(costs, Decimal()) if costs else None))

    def to_dict(self) -> dict[str, Any]:
        """Return the form in progress events and in the log's rows."""
        return {**self._asdict(), "cost_usd": None if self.cost_usd is None else str(self.cost_usd)}


NO_USAGE = UsageTotals()


def usage_totals(usage: Usage | None) -> UsageTotals:
    """Return the usage of one model call."""
    if usage is None:
        return NO_USAGE
    cache = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return UsageTotals(usage.input_tokens, usage.output_tokens, *cache, usage.cost_usd)


def with_usage(row: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """Add the usage of an answer to its row, if the provider reports it."""
    return row if usage is None else marked(row, usage=usage_totals(usage).to_dict())


def usage_in(rows: Iterable[dict[str, Any]]) -> UsageTotals:
    """Return the usage of the answers in these rows, and of the sub-agents whose results they contain."""
    total = NO_USAGE
    for row in rows:
        if data := metadata_of(row).get("usage"):
            total = total.plus(usage_from_dict(data))
    return total


def usage_from_dict(data: Any) -> UsageTotals:
    """Parse the form of `UsageTotals.to_dict`; zero if it is malformed."""
    try:
        counts = [int(data.get(count) or 0) for count in UsageTotals._fields[:-1]]
        cost = None if data.get("cost_usd") is None else Decimal(data["cost_usd"])
    except (AttributeError, ValueError, TypeError, ArithmeticError):
        return NO_USAGE
    return UsageTotals._make((*counts, cost if cost is not None and cost.is_finite() else None))


class Copies:
    """Copies of a conversation's rows for the hooks. Each row is copied once.

    A change that a hook makes in place is visible to other hooks only.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._copies: list[Row] = []

    def of(self, rows: list[Row]) -> list[Row]:
        """Return the copies in a new list."""
        new = rows[len(self._rows) :]
        self._rows.extend(new)
        if self._rows != rows:
            self._rows, self._copies, new = list(rows), [], rows
        self._copies.extend(deepcopy(new))
        return self._copies.copy()


@dataclass(slots=True, weakref_slot=True)
class SessionState:
    """State between runs.

    Args:
        notices: notices for the next run.
        usage: usage of all runs so far; `None`: not read from the log yet.
        knows_log: this state reflects every row of the log.
        token_budgets: by provider, after a request that was too long for it.
        transcript: the cached conversation in the form for providers; `copies`: in the form for hooks.
        ephemeral: hook injections for the next request, if the coordinator does not keep them.
    """

    notices: list[str] = field(default_factory=list)
    usage: UsageTotals | None = None
    knows_log: bool = False
    token_budgets: dict[str, int] = field(default_factory=dict)
    transcript: Transcript | None = None
    copies: Copies | None = None
    ephemeral: list[ContextInjection] = field(default_factory=list)
    # Of the ids of all tool calls in the log. Idle conversations keep them, and the ids would take more memory.
    _call_hashes: array[int] = field(default_factory=lambda: array("q"))
    _release_context: Callable[[], object] | None = None
    _timer: asyncio.TimerHandle | None = None

    def note_calls(self, rows: Iterable[Row]) -> None:
        """Note the ids of the tool calls in these rows."""
        ids = (call_id for row in rows if isinstance(row, dict) for call_id in call_ids(row))
        self._call_hashes = array("q", {*self._call_hashes, *map(hash, ids)})

    def note_call(self, call_id: str) -> None:
        """Note the id of a tool call."""
        if not self.has_used(call_id):
            self._call_hashes.append(hash(call_id))

    def has_used(self, call_id: str) -> bool:
        """Return whether a tool call of the log has this id; the rendered conversation may omit it."""
        return hash(call_id) in self._call_hashes

    def schedule_release(self, release_context: Callable[[], object] | None) -> None:
        """Schedule the release of the cache, and of the context's, if no run starts in time."""
        rows = self.transcript.length if self.transcript else 0
        lifetime_s = _LONG_LIFETIME_S if rows > _MANY_ROWS else _SHORT_LIFETIME_S
        self._release_context = release_context
        # A weak reference: the timer must not keep a dropped session alive.
        self._timer = asyncio.get_running_loop().call_later(lifetime_s, _release, ref(self))

    def cancel_release(self) -> None:
        """Cancel the scheduled release: a run starts, or the session ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release(self) -> None:
        """Release everything that can be read again."""
        self.transcript = self.copies = self._timer = None
        if self._release_context is not None:
            self._release_context()


def _release(reference: ref[SessionState]) -> None:
    if (state := reference()) is not None:
        state.release()
