"""State that an orchestrator keeps between the runs of a conversation: notices, usage, and the cached conversation."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

from orchestrator_interactive.transcript.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.loop.outcome import RunOutcome
    from orchestrator_interactive.loop.usage import UsageTotals

# Lifetime of the message cache after a run, in seconds: with more than _MANY_ROWS rows, and with fewer.
_MANY_ROWS = 100
_LONG_LIFETIME_S, _SHORT_LIFETIME_S = 60.0, 1.0

Row = dict[str, Any]


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


@dataclass(frozen=True, slots=True)
class MessageCache:
    """The conversation in the form for providers and in the form for hooks."""

    transcript: Transcript = field(default_factory=Transcript)
    copies: Copies = field(default_factory=Copies)


@dataclass(slots=True, weakref_slot=True)
class SessionState:
    """State between runs.

    Args:
        notices: notices for the next run.
        usage: usage of all runs so far; `None`: not read from the log yet.
        knows_log: this state reflects every row of the log.
        token_budgets: by provider, after a request that was too long for it.
        message_cache: the cached conversation; `None`: not cached.
    """

    notices: list[str] = field(default_factory=list)
    usage: UsageTotals | None = None
    knows_log: bool = False
    token_budgets: dict[str, int] = field(default_factory=dict)
    message_cache: MessageCache | None = None

    _release_context: Callable[[], object] | None = None
    _timer: asyncio.TimerHandle | None = None

    def cached_messages(self) -> MessageCache:
        """Return the cached conversation, for the next run."""
        if self.message_cache is None:
            self.message_cache = MessageCache()
        return self.message_cache

    def note_end(self, usage: UsageTotals, outcome: RunOutcome) -> None:
        """Add the usage of a run that has ended."""
        if self.usage is not None:
            self.usage = self.usage.plus(usage)
        # After any other outcome, the log may differ from this state.
        self.knows_log = self.knows_log and outcome.status in ("success", "incomplete")

    def schedule_release(self, release_context: Callable[[], object] | None) -> None:
        """Schedule the release of the cache, and of the context's, if no run starts in time."""
        rows = self.message_cache.transcript.length if self.message_cache else 0
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
        self.message_cache, self._timer = None, None
        if self._release_context is not None:
            self._release_context()


def _release(reference: ref[SessionState]) -> None:
    if (state := reference()) is not None:
        state.release()
