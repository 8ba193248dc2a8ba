"""Parse inbox entries into messages, stops and catch-ups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from connector.events import SlackMessage, StopRequest, checked_ts
from connector.records.inbox import PendingMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.protocols import InboxEntry

# Errors that parsing a record of another format can raise.
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)


class UnreadableEntry(Exception):  # noqa: N818 - a fact about stored data
    """A record has a format that this version cannot read."""


@dataclass(frozen=True, slots=True)
class ThreadCatchUp:
    """Request to read a thread from Slack: a reply to the mention may have been acknowledged and not stored.

    Args:
        mention: the message that called an agent into the thread.
        since: its ts, or when an edit made it a mention.
        is_shared: whether the channel is shared with another workspace; `None`: unknown.
    """

    mention: PendingMessage
    since: str
    is_shared: bool | None

    @property
    def id(self) -> str:
        return f"{self.mention.id}:catch_up"

    def to_dict(self) -> dict[str, Any]:
        return {"mention": self.mention.to_dict(), "since": self.since, "is_shared": self.is_shared}

    @classmethod
    def from_entry(cls, entry: InboxEntry) -> Self:
        mention = entry.data["mention"]
        message_id = _message(mention["message"]).id
        checked_ts(entry.data["since"])
        return cls(PendingMessage.from_dict(mention, message_id, 0), entry.data["since"], entry.data["is_shared"])


def parse_entry(entry: InboxEntry) -> PendingMessage | StopRequest | SlackMessage | ThreadCatchUp:
    """Return a new or changed message, a stop, a bare mention, or a catch-up.

    Raises:
        UnreadableEntry: another version has written it.
    """
    try:
        match entry.kind:
            case "message" | "edit" | "withdrawal":
                return _inbound(entry)
            case "stop":
                return _stop(entry)
            case "mention":
                return _message(entry.data["message"])
            case "catch_up":
                return ThreadCatchUp.from_entry(entry)
    except UNREADABLE as e:
        raise UnreadableEntry from e
    raise UnreadableEntry


def _inbound(entry: InboxEntry) -> PendingMessage:
    return PendingMessage.from_dict(entry.data, entry.id, entry.seq)


def _stop(entry: InboxEntry) -> StopRequest:
    data = entry.data
    word = None if data.get("message") is None else _message(data["message"])
    checked_ts(data["at"])
    return StopRequest(entry.id, data["user"], data["at"], data.get("ts"), data.get("run"), word)


def _message(data: Mapping[str, Any]) -> SlackMessage:
    return SlackMessage(**{**data, "files": tuple(data["files"])})
