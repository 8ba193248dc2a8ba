"""A message from a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import START, UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class UserMessageState(BaseState):
    """A message from a person, allowed at any point before the end.

    Args:
        text: text, or content blocks.
        meta: additional data.
        meanwhile: it arrived while the agent was working and belongs to the current task.
    """

    text: str | list[dict[str, Any]]
    meta: Any = None
    meanwhile: bool = False

    follows: ClassVar[frozenset[str] | None] = UNDERWAY | {START}
