"""A conversation that waits for something external."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState

WaitKind = Literal["tool", "agent", "llm", "user_input"]


@dataclass(slots=True, frozen=True)
class WaitingState(BaseState):
    """The conversation waits.

    Args:
        kind: what it waits for.
        deadline: in seconds since the epoch; `None` for no deadline.
        correlation_id: id of the call or request that it waits for.
    """

    kind: WaitKind
    deadline: float | None = None
    correlation_id: str | None = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY

    def __post_init__(self) -> None:
        if self.kind not in get_args(WaitKind):
            raise ValueError(f"A conversation waits for one of {', '.join(get_args(WaitKind))}; not for {self.kind!r}.")

    def is_over(self, now_s: float | None = None) -> bool:
        """Return whether the deadline has passed; `now_s` in seconds since the epoch."""
        return self.deadline is not None and (time.time() if now_s is None else now_s) >= self.deadline
