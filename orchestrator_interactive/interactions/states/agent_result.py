"""The answer of another agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class AgentResultState(BaseState):
    """The answer to an open request.

    Args:
        score: rating of the answer, if it was rated.
    """

    correlation_id: str
    result: Any
    score: float | None = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
