"""What an orchestrator keeps of its conversation from one run to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator_interactive.seen import Seen

if TYPE_CHECKING:
    from orchestrator_interactive.outcomes import RunOutcome
    from orchestrator_interactive.usage import Spent


@dataclass(slots=True)
class Memory:
    """What it keeps.

    Args:
        notices: for the next run to tell.
        spent: what the runs so far used up; `None`: that has not been read yet.
        knows_log: nothing can stand in the log that it does not know of.
        token_budgets: of providers that have said that a request was too long for them.
        seen: what was looked at of the conversation already.
    """

    notices: list[str] = field(default_factory=list)
    spent: Spent | None = None
    knows_log: bool = False
    token_budgets: dict[str, int] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)

    def note_end(self, spent: Spent, outcome: RunOutcome) -> None:
        """A run has ended."""
        if self.spent is not None:
            self.spent = self.spent.plus(spent)
        # After any other end rows may be missing, or be there unknown.
        self.knows_log = self.knows_log and outcome.status in ("success", "incomplete")

    def forget(self) -> None:
        """What can be read again need not take up memory in a conversation that rests."""
        self.seen = Seen()
