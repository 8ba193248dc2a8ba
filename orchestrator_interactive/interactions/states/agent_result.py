"""What another agent answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class AgentResultState(BaseState):
    """The answer to an open request.

    Args:
        score: how good the answer is, where somebody judged it.
    """

    correlation_id: str
    result: Any
    score: float | None = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
