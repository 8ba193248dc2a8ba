"""Where a tool's call belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The conversation that a tool is called in.

    Args:
        conversation_id: the session's id, where there is no stack.
        agent_id: blank where there is no stack.
        stack: the conversation's log; `None` where the session's context is none that keeps one.
    """

    conversation_id: str
    agent_id: str
    stack: InteractionStack | None
    coordinator: ModuleCoordinator

    @classmethod
    def of(cls, coordinator: ModuleCoordinator) -> ToolContext:
        """The context of what happens in this session."""
        stack: InteractionStack | None = coordinator.get_capability("interactions.stack")
        if stack is None:
            return cls(coordinator.session_id, "", None, coordinator)
        return cls(stack.key.conversation_id, stack.key.agent_id, stack, coordinator)
