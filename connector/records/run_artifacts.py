"""What a run has left when it is over, until it is taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from connector.events import ThreadAddress

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """What a run has left in its channel.

    Args:
        first_ts: the message that it began with.
        statuses: the ts of its status messages.
        is_marked: whether there may be an hourglass on its first message.
        team, thread_ts: the thread that Slack may show as at work; blank: there is none.
        run_id: what the keys of its posts begin with; blank: nobody knows.
        user: the author of the message that it began with; blank: unknown.
        is_inherited: whether there may be more: of a process that had it before, or that Slack has not told us of.
    """

    channel: str
    first_ts: str
    statuses: tuple[str, ...]
    is_marked: bool
    team: str = ""
    thread_ts: str = ""
    run_id: str = ""
    user: str = ""
    is_inherited: bool = False

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """What was written, be it by an older version.

        Raises:
            KeyError, TypeError, ValueError: it cannot be read.
        """
        thread = data.get("team", ""), data.get("thread_ts", "")
        return cls(
            data["channel"],
            data["first_ts"],
            tuple(data["statuses"]),
            data["is_marked"],
            *thread,
            data.get("run_id", ""),
            data.get("user", ""),
        )

    @property
    def place(self) -> ThreadAddress:
        return ThreadAddress(self.team, self.channel, self.thread_ts or None)

    def has_posted(self, key: str) -> bool:
        """Whether a post with this key is one of the run's."""
        return bool(self.run_id) and key.startswith(f"{self.run_id}:")
