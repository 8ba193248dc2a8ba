"""The invocation of a tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class ToolCallState(BaseState):
    """A call of a tool, from now on open: a `ToolResultState` with this `id` answers it."""

    id: str
    function_name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
