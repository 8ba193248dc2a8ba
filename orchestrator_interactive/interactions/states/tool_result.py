"""What came of a tool's invocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class ToolResultState(BaseState):
    """The result of an open call.

    Args:
        reward: how well the result served, where somebody judged it.
        meta: whatever belongs beside it.
    """

    tool_call_id: str
    tool_name: str | None
    result: Any
    reward: float | None = None
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
