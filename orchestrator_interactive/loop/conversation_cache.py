"""Cached forms of a conversation's rows, so that the next run processes only new rows."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from orchestrator_interactive.transcript.transcript import Transcript

Row = dict[str, Any]


class Copies:
    """Copies of a conversation's rows for the hooks. Each row is copied once.

    A change that a hook makes in place is visible to other hooks only.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._copies: list[Row] = []

    def of(self, rows: list[Row]) -> list[Row]:
        """Return the copies in a new list."""
        new = rows[len(self._rows) :]
        self._rows.extend(new)
        if self._rows != rows:
            self._rows, self._copies, new = list(rows), [], rows
        self._copies.extend(deepcopy(new))
        return self._copies.copy()


@dataclass(frozen=True, slots=True)
class MessageCache:
    """The conversation in the form for providers and in the form for hooks."""

    transcript: Transcript = field(default_factory=Transcript)
    copies: Copies = field(default_factory=Copies)
