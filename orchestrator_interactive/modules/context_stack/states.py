"""Rows that are no step of a conversation's flow."""

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
