"""The result of a tool call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class ToolResultState(BaseState):
    """The result of an open call.

    Args:
        reward: rating of the result, if it was rated.
        meta: additional data.
    """

    tool_call_id: str
    tool_name: str | None
    result: Any
    reward: float | None = None
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
