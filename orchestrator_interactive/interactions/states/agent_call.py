"""A request to another agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import uuid4

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState


def _new_id() -> str:
    return uuid4().hex


@dataclass(slots=True, frozen=True)
class AgentCallState(BaseState):
    """An open request to another agent; an `AgentResultState` with its `correlation_id` closes it."""

    agent_id: str
    message: str
    correlation_id: str = field(default_factory=_new_id)

    follows: ClassVar[frozenset[str] | None] = UNDERWAY
