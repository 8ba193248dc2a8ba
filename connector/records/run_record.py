"""What stands with the lease of a conversation: the run that is on, or what the runs before have left."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from connector.records.entries import UNREADABLE, UnreadableEntry
from connector.records.inbox import PendingMessage
from connector.records.pending_cleanup import PendingCleanup

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
        stops: how often it was stopped: the second one is immediate.
        status_ts: the ts of its status message; `None`: Slack has not told it yet.
        is_marked: whether there may be an hourglass on its first message.
        is_over: whether its last word is in the outbox: it does, and reads, nothing any more.
        named: of the waiting messages, up to which place that word has spoken of them.
        leftovers: what runs before it have left to be done.
        is_taken_up: whether another process had it before; this is not stored.
    """

    id: str
    first: PendingMessage
    was_waiting: bool
    newest_ts: str
    stopped_by: str | None = None
    stops: int = 0
    status_ts: str | None = None
    is_marked: bool = True
    is_over: bool = False
    named: int = 0
    leftovers: PendingCleanup = field(default_factory=PendingCleanup)
    is_taken_up: bool = False

    @classmethod
    def begun_with(
        cls,
        first: PendingMessage,
        *,
        was_waiting: bool,
        newest_ts: str,
        is_marked: bool = True,
        leftovers: PendingCleanup = PendingCleanup(),  # noqa: B008 - it is frozen
    ) -> Self:
        return cls(uuid4().hex, first, was_waiting, newest_ts, is_marked=is_marked, leftovers=leftovers)

    def written(self) -> dict[str, Any]:
        first = {**self.first.written(), "id": self.first.id, "seq": self.first.seq}
        kept = {name: getattr(self, name) for name in _NAMES}
        return {**kept, "first": first, "leftovers": self.leftovers.written()}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """What was written, be it by an older version; what a newer one has added is left out.

        Raises:
            KeyError, TypeError, ValueError: it cannot be read.
        """
        first = PendingMessage.read(data["first"], data["first"]["id"], data["first"]["seq"])
        leftovers = PendingCleanup.read(
            data.get("leftovers") or data
        )  # an older version has its traces in the record itself
        older = {"stops": 1 if data.get("stopped_by") else 0, "is_over": bool(data.get("failed"))}
        kept = {name: data[name] for name in _NAMES if name in data}
        return cls(**{**older, **kept, "first": first, "leftovers": leftovers, "is_taken_up": True})


_NAMES = tuple(field.name for field in fields(RunRecord) if field.name != "is_taken_up")


def read(data: Mapping[str, Any]) -> RunRecord | PendingCleanup:
    """What stands with a lease.

    Raises:
        Unreadable: another version has written it.
    """
    try:
        return RunRecord.read(data) if "id" in data else PendingCleanup.read(data)
    except UNREADABLE as e:
        raise UnreadableEntry from e
