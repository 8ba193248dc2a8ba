"""What is kept of a run while it is on."""

from __future__ import annotations

from dataclasses import dataclass
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
        stopped_by: who stopped it; `None`: nobody did.
        status_ts: the ts of its status message; `None`: Slack has not told it yet.
    """

    id: str
    first: Inbound
    was_waiting: bool
    stopped_by: str | None = None
    status_ts: str | None = None

    @classmethod
    def begun_with(cls, first: Inbound, *, was_waiting: bool) -> Self:
        return cls(uuid4().hex, first, was_waiting)

    def written(self) -> dict[str, Any]:
        first = {**self.first.written(), "id": self.first.id, "seq": self.first.seq}
        return {
            "id": self.id,
            "first": first,
            "was_waiting": self.was_waiting,
            "stopped_by": self.stopped_by,
            "status_ts": self.status_ts,
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        first = data["first"]
        inbound = Inbound.read(first, first["id"], first["seq"])
        return cls(**{**data, "first": inbound})
