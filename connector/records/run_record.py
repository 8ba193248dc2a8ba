"""The record stored with the lease of a conversation: the active run, or the pending cleanup of earlier runs."""

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
    """The durable state of a run, from which another process can resume it.

    Args:
        first: its first message.
        was_waiting: whether its first message was marked 📨 or held back by a stop.
        newest_ts: ts of the latest message that was pending when it began.
        stopped_by: the user who stopped it; `None`: it was not stopped.
        stops: number of stop requests; the second one stops immediately.
        status_ts: ts of its status message; `None`: not known yet.
        has_hourglass: whether its first message may have an hourglass.
        is_over: whether its last post is in the outbox; it then does no more work and accepts no messages.
        announced_seq: sequence number of the last pending message counted in the stop notice.
        pending_cleanup: the pending cleanup of earlier runs.
        was_taken_over: whether another process owned it before; not stored.
    """

    id: str
    first: PendingMessage
    was_waiting: bool
    newest_ts: str
    stopped_by: str | None = None
    stops: int = 0
    status_ts: str | None = None
    has_hourglass: bool = True
    is_over: bool = False
    announced_seq: int = 0
    pending_cleanup: PendingCleanup = field(default_factory=PendingCleanup)
    was_taken_over: bool = False

    @classmethod
    def begun_with(
        cls,
        first: PendingMessage,
        *,
        was_waiting: bool,
        newest_ts: str,
        has_hourglass: bool = True,
        pending_cleanup: PendingCleanup = PendingCleanup(),  # noqa: B008 - it is frozen
    ) -> Self:
        return cls(
            uuid4().hex, first, was_waiting, newest_ts, has_hourglass=has_hourglass, pending_cleanup=pending_cleanup
        )

    def to_dict(self) -> dict[str, Any]:
        first = {**self.first.to_dict(), "id": self.first.id, "seq": self.first.seq}
        kept = {name: getattr(self, name) for name in _NAMES}
        return {**kept, "first": first, "pending_cleanup": self.pending_cleanup.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse stored data; ignore unknown fields.

        Raises:
            KeyError, TypeError, ValueError: the data has another format.
        """
        first = PendingMessage.from_dict(data["first"], data["first"]["id"], data["first"]["seq"])
        kept = {name: data[name] for name in _NAMES}
        pending_cleanup = PendingCleanup.from_dict(data["pending_cleanup"])
        return cls(**{**kept, "first": first, "pending_cleanup": pending_cleanup, "was_taken_over": True})


_NAMES = tuple(field.name for field in fields(RunRecord) if field.name != "was_taken_over")


def parse_run_record(data: Mapping[str, Any]) -> RunRecord | PendingCleanup:
    """Parse the record stored with a lease.

    Raises:
        UnreadableEntry: another version has written it.
    """
    try:
        return RunRecord.from_dict(data) if "id" in data else PendingCleanup.from_dict(data)
    except UNREADABLE as e:
        raise UnreadableEntry from e
