"""Steering messages, and the progress events of a run, for the tests of sessions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest

from connector.protocols import MessageAuthor, MessageFile

HERE = "T:C:1.0"
# Runs a test over a manager in this process, and over one whose sessions are behind a socket.
BOTH = pytest.mark.parametrize("manager", ["in_process", "grpc"], indirect=True)
ANA = MessageAuthor("U0ANA", "Ana")


@dataclass(frozen=True)
class Written:
    """A message of a person, as the connector passes it to a session manager."""

    message_id: str
    prompt: str
    author: MessageAuthor
    written_s: float
    files: tuple[MessageFile, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `inject`."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def steering(id_: str, text: str = "and that", written_s: float = 2.0) -> dict[str, Any]:
    return Written(id_, text, ANA, written_s).arguments


class ProgressRecorder:
    """Record the progress events of runs; pass it as `on_progress`."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))

    def data(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == event]

    @property
    def statuses(self) -> list[str]:
        """Return how each run ended."""
        return [data["status"] for data in self.data("complete")]
