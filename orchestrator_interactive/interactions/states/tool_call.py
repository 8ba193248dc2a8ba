"""A tool call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class ToolCallState(BaseState):
    """An open tool call; a `ToolResultState` with this `id` closes it."""

    id: str
    function_name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
