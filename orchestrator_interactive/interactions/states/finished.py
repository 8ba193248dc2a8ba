"""The end of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


@dataclass(slots=True, frozen=True)
class FinishedState(BaseState):
    """The conversation is complete: this branch accepts no more states."""

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
