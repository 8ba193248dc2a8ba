"""States that a context stores outside the conversation's flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator_interactive.interactions.states import BaseState


@dataclass(slots=True, frozen=True)
class RowState(BaseState):
    """A row outside the flow: a hook's row, a system row, or a row that the flow does not allow at its position."""

    row: dict[str, Any]

    def message(self) -> dict[str, Any]:
        """Return the message for a model."""
        return self.row


@dataclass(slots=True, frozen=True)
class ViewState(BaseState):
    """The view of requests from here on, once the conversation exceeds the window; `None` for all of it."""

    view: dict[str, Any] | None

    def note(self) -> str:
        if self.view is None:
            return "From here on the model sees the whole conversation"
        part = "a summary and a part" if self.view.get("summary") else "a part"
        return f"From here on the model sees {part} of the earlier conversation"
