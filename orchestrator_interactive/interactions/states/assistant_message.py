"""An answer of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator_interactive.interactions.states.base import UNDERWAY, BaseState

_REFLECTION = "reflection:"


@dataclass(slots=True, frozen=True)
class AssistantMessageState(BaseState):
    """An answer of the model. It is not allowed while a tool or another agent still owes a result.

    Args:
        content: text, or content blocks in the model's order, including thinking blocks with their signatures.
        tool_calls: requested calls in OpenAI's format; each has an `id`.
        meta: additional data, such as "reflection:get_weather".
    """

    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    meta: Any = None

    follows: ClassVar[frozenset[str] | None] = UNDERWAY - {"ToolCallState", "AgentCallState"}

    @property
    def is_reflection(self) -> bool:
        """Whether it evaluates the conversation instead of being part of it."""
        return isinstance(self.meta, str) and self.meta.startswith(_REFLECTION) and not self.tool_calls
