"""What a context writes beside the flow of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator_interactive.interactions.states import BaseState


@dataclass(slots=True, frozen=True)
class RowState(BaseState):
    """A row as it is, beside the flow: a remark of a hook, a system row, or what does not fit where it came."""

    row: dict[str, Any]

    def message(self) -> dict[str, Any]:
        """The message that it is for a model."""
        return self.row


@dataclass(slots=True, frozen=True)
class ViewState(BaseState):
    """What requests show from here on, since the conversation has outgrown them; `None`: everything again."""

    view: dict[str, Any] | None

    def note(self) -> str:
        if self.view is None:
            return "From here on the model sees the whole conversation"
        what = "a summary and a part" if self.view.get("summary") else "a part"
        return f"From here on the model sees {what} of what came before"
