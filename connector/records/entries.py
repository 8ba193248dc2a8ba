"""Inbox entries: accepted messages, stops, mentions without text, and requests to read a thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter

from connector.events import SlackMessage, StopRequest, Ts

if TYPE_CHECKING:
    from connector.protocols import InboxEntry

# Errors that parsing a record or an event of another format can raise.
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)


class UnreadableEntry(Exception):  # noqa: N818 - a fact about stored data
    """A record has a format that this version cannot read."""


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """An accepted message, its instance, and its text for the model.

    Args:
        id: identity as an inbox entry and in the log.
        seq: sequence number in the order of acceptance.
        edited_ts: ts of the latest edit or deletion; blank: never changed.
        is_marked_accepted: whether it has 📨 because it waits for a slot.
    """

    message: SlackMessage
    instance: str
    prompt: str
    id: str
    seq: int = 0
    edited_ts: Ts | Literal[""] = ""
    is_marked_accepted: bool = False

    @property
    def is_late_change(self) -> bool:
        """Whether it reports an edit or a deletion of a delivered message."""
        return self.id != self.message.id

    @property
    def written_s(self) -> float:
        """Time of the message, or of the edit or deletion that it reports, in seconds since the epoch."""
        return float(self.edited_ts if self.is_late_change and self.edited_ts else self.message.ts)

    @property
    def is_urgent(self) -> bool:
        """Whether it begins with `!`, which requests delivery at once."""
        return self.prompt.startswith("!")

    @property
    def mentioned(self) -> list[str]:
        """The mentioned users whose names are to be looked up. Slack sends some mentions with the name included."""
        return [user for user in self.message.mentioned if f"@{user}" in self.prompt]


@dataclass(frozen=True, slots=True)
class ThreadCatchUp:
    """Request to read a thread from Slack: a reply to the mention may have been acknowledged and not stored.

    Args:
        mention: the message that called an agent into the thread.
        since: its ts, or when an edit made it a mention.
        is_shared: whether the channel is shared with another workspace; `None`: unknown.
    """

    mention: PendingMessage
    since: Ts
    is_shared: bool | None

    @property
    def id(self) -> str:
        return f"{self.mention.id}:catch_up"


_MESSAGE, _STOP = TypeAdapter(PendingMessage), TypeAdapter(StopRequest)
_MENTION, _CATCH_UP = TypeAdapter(SlackMessage), TypeAdapter(ThreadCatchUp)


def parse_entry(entry: InboxEntry) -> PendingMessage | StopRequest | SlackMessage | ThreadCatchUp:
    """Return a new or changed message, a stop, a mention without text, or a catch-up.

    Raises:
        UnreadableEntry: another version has written it.
    """
    try:
        match entry.kind:
            case "message" | "edit" | "withdrawal":
                return _MESSAGE.validate_python({**entry.data, "id": entry.id, "seq": entry.seq})
            case "stop":
                return _STOP.validate_python({**entry.data, "id": entry.id})
            case "mention":
                return _MENTION.validate_python(entry.data["message"])
            case "catch_up":
                return _CATCH_UP.validate_python(entry.data)
    except UNREADABLE as e:
        raise UnreadableEntry from e
    raise UnreadableEntry
