"""What the agent said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState

_REFLECTION = "reflection:"


@dataclass(slots=True, frozen=True)
class AssistantMessageState(BaseState):
    """An answer of the model. It cannot come while a tool or another agent still owes it a result.

    Args:
        content: text, or content blocks in the model's order, thinking with its signature among them.
        tool_calls: the calls that it asks for, in the format of OpenAI's API; each has an `id`.
        meta: whatever belongs beside it, such as "reflection:get_weather".
    """

    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY - {"ToolCallState", "AgentCallState"}

    @property
    def is_reflection(self) -> bool:
        """Whether it judges the conversation, and was not said in it."""
        return isinstance(self.meta, str) and self.meta.startswith(_REFLECTION) and not self.tool_calls
