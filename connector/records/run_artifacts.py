"""Status messages and reactions of a run that are to be removed after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from connector.events import ThreadAddress

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """The artifacts of a run in its channel.

    Args:
        first_ts: ts of its first message.
        statuses: ts of its status messages.
        has_hourglass: whether its first message may have an hourglass.
        team, thread_ts: the thread that Slack may show as working; blank: none.
        run_id: prefix of the keys of its posts; blank: unknown.
        user: author of its first message; blank: unknown.
        is_inherited: whether further artifacts may exist: posts of an earlier owner, or calls without a response.
    """

    channel: str
    first_ts: str
    statuses: tuple[str, ...]
    has_hourglass: bool
    team: str = ""
    thread_ts: str = ""
    run_id: str = ""
    user: str = ""
    is_inherited: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse stored data.

        Raises:
            KeyError, TypeError, ValueError: the data has another format.
        """
        return cls(**{**data, "statuses": tuple(data["statuses"])})

    @property
    def place(self) -> ThreadAddress:
        return ThreadAddress(self.team, self.channel, self.thread_ts or None)

    def has_posted(self, key: str) -> bool:
        """Return whether a post with this key belongs to the run."""
        return bool(self.run_id) and key.startswith(f"{self.run_id}:")
