"""What a run has looked at of its conversation, so that the next one need not look at all of it again."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from orchestrator_interactive.transcript.transcript import Transcript

Row = dict[str, Any]


class Copies:
    """Copies of a conversation's rows for the hooks. Each row is copied once, however long the conversation.

    A hook that changes one in place is heard by other hooks only.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._copies: list[Row] = []

    def of(self, rows: list[Row]) -> list[Row]:
        """The copies, in a list that is the hooks' own."""
        new = rows[len(self._rows) :]
        self._rows.extend(new)
        if self._rows != rows:
            self._rows, self._copies, new = list(rows), [], rows
        self._copies.extend(deepcopy(new))
        return self._copies.copy()


@dataclass(frozen=True, slots=True)
class MessageCache:
    """The conversation as providers take it, and as hooks get it."""

    transcript: Transcript = field(default_factory=Transcript)
    copies: Copies = field(default_factory=Copies)
