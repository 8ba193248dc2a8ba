"""What a person said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import START, UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class UserMessageState(BaseState):
    """A message of a person. People may write at any time, so it may come at any point before the end.

    Args:
        text: the message; content blocks where there is more to it than text.
        meta: whatever belongs beside it.
        meanwhile: it was said while the agent was at work, and belongs to the task that is on.
    """

    text: str | list[dict[str, Any]]
    meta: Any = None
    meanwhile: bool = False

    follows: ClassVar[frozenset[str] | None] = UNDERWAY | {START}
