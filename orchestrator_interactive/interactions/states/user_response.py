"""The answer of a person to a question of the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class UserResponseState(BaseState):
    """The answer of a person to a question of the agent."""

    text: str
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY - {"ToolResultState", "AgentResultState"}
