"""What an orchestrator keeps of its conversation from one run to the next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import ref

from orchestrator_interactive.loop.conversation_cache import MessageCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.loop.outcome import RunOutcome
    from orchestrator_interactive.loop.usage import UsageTotals

# How long the next run finds ready what was read of the conversation, in seconds: of so many rows that it would take
# some time to read them again, and of fewer.
_MANY = 100
_MANY_REMEMBERED_S, _FEW_REMEMBERED_S = 60.0, 1.0


@dataclass(slots=True, weakref_slot=True)
class SessionState:
    """What it keeps.

    Args:
        notices: for the next run to tell.
        spent: what the runs so far used up; `None`: that has not been read yet.
        knows_log: nothing can stand in the log that it does not know of.
        token_budgets: of providers that have said that a request was too long for them.
        seen: what was looked at of the conversation already; `None`: nothing, or it was forgotten.
    """

    notices: list[str] = field(default_factory=list)
    spent: UsageTotals | None = None
    knows_log: bool = False
    token_budgets: dict[str, int] = field(default_factory=dict)
    seen: MessageCache | None = None

    _context_rests: Callable[[], object] | None = None
    _timer: asyncio.TimerHandle | None = None

    def remembered(self) -> MessageCache:
        """What was looked at of the conversation, for a run to go on with."""
        if self.seen is None:
            self.seen = MessageCache()
        return self.seen

    def note_end(self, spent: UsageTotals, outcome: RunOutcome) -> None:
        """A run has ended."""
        if self.spent is not None:
            self.spent = self.spent.plus(spent)
        # After any other end rows may be missing, or be there unknown.
        self.knows_log = self.knows_log and outcome.status in ("success", "incomplete")

    def rest_soon(self, context_rests: Callable[[], object] | None) -> None:
        """Take up little memory, and have the context do so, unless there is a next run in time."""
        rows = self.seen.transcript.length if self.seen else 0
        remembered_s = _MANY_REMEMBERED_S if rows > _MANY else _FEW_REMEMBERED_S
        self._context_rests = context_rests
        # Weakly: a session that somebody has dropped may go.
        self._timer = asyncio.get_running_loop().call_later(remembered_s, _rest, ref(self))

    def stay_awake(self) -> None:
        """Do not come to rest: a run begins, or the session ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rest(self) -> None:
        """Forget what can be read again."""
        self.seen, self._timer = None, None
        if self._context_rests is not None:
            self._context_rests()


def _rest(memory: ref[SessionState]) -> None:
    if (resting := memory()) is not None:
        resting.rest()
