"""What a run has left when it is over, until it is taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from connector.messages import Place

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Traces:
    """What a run has left in its channel.

    Args:
        first_ts: the message that it began with.
        statuses: the ts of its status messages.
        is_marked: whether there may be an hourglass on its first message.
        team, thread_ts: the thread that Slack may show as at work; blank: there is none.
    """

    channel: str
    first_ts: str
    statuses: tuple[str, ...]
    is_marked: bool
    team: str = ""
    thread_ts: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """What was written, be it by an older version."""
        thread = data.get("team", ""), data.get("thread_ts", "")
        return cls(data["channel"], data["first_ts"], tuple(data["statuses"]), data["is_marked"], *thread)

    @property
    def place(self) -> Place:
        return Place(self.team, self.channel, self.thread_ts or None)
