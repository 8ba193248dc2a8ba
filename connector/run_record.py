"""What is kept of a run while it is on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from connector.inbox import Inbound

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What must be known to go on with a run after its process died.

    Args:
        first: the message that it begins with.
        was_waiting: whether its author was told that it waits.
        newest_ts: of the messages that it began with, the latest.
        stopped_by: who stopped it; `None`: nobody did.
        status_ts: the ts of its status message; `None`: Slack has not told it yet.
        failed: what the thread was told, where it failed.
        traces: what runs before it have left and is not away yet.
    """

    id: str
    first: Inbound
    was_waiting: bool
    newest_ts: str
    stopped_by: str | None = None
    status_ts: str | None = None
    failed: str | None = None
    traces: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def begun_with(
        cls, first: Inbound, *, was_waiting: bool, newest_ts: str, traces: tuple[Mapping[str, Any], ...] = ()
    ) -> Self:
        return cls(uuid4().hex, first, was_waiting, newest_ts, traces=traces)

    def written(self) -> dict[str, Any]:
        first = {**self.first.written(), "id": self.first.id, "seq": self.first.seq}
        return {name: first if name == "first" else getattr(self, name) for name in _NAMES}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """What was written; what a newer version has added is left out.

        Raises:
            KeyError, TypeError, ValueError: it cannot be read.
        """
        first = Inbound.read(data["first"], data["first"]["id"], data["first"]["seq"])
        return cls(**{**{name: data[name] for name in _NAMES if name in data}, "first": first})


_NAMES = tuple(field.name for field in fields(RunRecord))
