"""What stands in an inbox, as those who act on it need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.inbox import Inbound
from connector.messages import Message, Stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.protocols import Entry

# How what is of another form than expected shows itself.
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)


class Unreadable(Exception):  # noqa: N818 - a fact about what was found
    """Another version of this service has written it."""


def read(entry: Entry) -> Inbound | Stop | Message:
    """The message that somebody wrote, or changed; a stop; or a bare mention.

    Raises:
        Unreadable: another version has written it.
    """
    try:
        match entry.kind:
            case "message" | "edit" | "withdrawal":
                return _inbound(entry)
            case "stop":
                return _stop(entry)
            case "mention":
                return _message(entry.data["message"])
    except UNREADABLE as e:
        raise Unreadable from e
    raise Unreadable


def _inbound(entry: Entry) -> Inbound:
    inbound = Inbound.read(entry.data, entry.id, entry.seq)
    float(inbound.message.ts)
    return inbound


def _stop(entry: Entry) -> Stop:
    data = entry.data
    word = None if data.get("message") is None else _message(data["message"])
    float(data["at"])
    return Stop(entry.id, data["user"], data["at"], data.get("ts"), data.get("run"), word)


def _message(data: Mapping[str, Any]) -> Message:
    return Message(**{**data, "files": tuple(data["files"])})
