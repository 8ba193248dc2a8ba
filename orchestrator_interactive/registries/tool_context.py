"""The context of a tool call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The conversation in which a tool is called.

    Args:
        conversation_id: id of the conversation; without a stack, the session's id.
        agent_id: id of the agent; without a stack, blank.
        stack: the conversation's log; `None` if the session's context has no log.
    """

    conversation_id: str
    agent_id: str
    stack: InteractionStack | None
    coordinator: ModuleCoordinator

    @classmethod
    def of(cls, coordinator: ModuleCoordinator) -> ToolContext:
        """Return the context of calls in this session."""
        stack: InteractionStack | None = coordinator.get_capability("interactions.stack")
        if stack is None:
            return cls(coordinator.session_id, "", None, coordinator)
        return cls(stack.key.conversation_id, stack.key.agent_id, stack, coordinator)
