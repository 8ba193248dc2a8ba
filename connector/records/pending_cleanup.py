"""Pending cleanup of finished runs, stored with the lease until it is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from connector.events import SlackMessage
from connector.records.run_artifacts import RunArtifacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.events import ThreadAddress


@dataclass(frozen=True, slots=True)
class Notice:
    """A post by the service itself that belongs to no active run.

    Args:
        message: the message that it answers, in whose conversation it is posted.
        key: idempotency key of the post.
        text: plain text, not Slack markup.
        is_inherited: whether an earlier owner may have posted it.
    """

    message: SlackMessage
    key: str
    text: str
    is_inherited: bool = False

    @property
    def place(self) -> ThreadAddress:
        return self.message.place

    def has_posted(self, key: str) -> bool:
        """Return whether a post with this key is this notice."""
        return key == self.key

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse stored data.

        Raises:
            KeyError, TypeError, ValueError: the data has another format.
        """
        message = SlackMessage(**{**data["message"], "files": tuple(data["message"]["files"])})
        return cls(message, data["key"], data["text"], data["is_inherited"])


@dataclass(frozen=True, slots=True)
class PendingCleanup:
    """Artifacts to remove and notices to post."""

    artifacts: tuple[RunArtifacts, ...] = ()
    notices: tuple[Notice, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the data stored with the lease; empty if nothing is pending."""
        kept = {
            "artifacts": [asdict(each) for each in self.artifacts],
            "notices": [asdict(each) for each in self.notices],
        }
        return {kind: left for kind, left in kept.items() if left}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse stored data.

        Raises:
            KeyError, TypeError, ValueError: the data has another format.
        """
        artifacts = tuple(RunArtifacts.from_dict(each) for each in data.get("artifacts", ()))
        return cls(artifacts, tuple(Notice.from_dict(each) for each in data.get("notices", ())))

    @property
    def inherited(self) -> PendingCleanup:
        """The same cleanup marked as inherited: late calls of the earlier owner may still reach Slack."""
        artifacts = tuple(replace(each, is_inherited=True) for each in self.artifacts)
        return PendingCleanup(artifacts, tuple(replace(each, is_inherited=True) for each in self.notices))

    def __bool__(self) -> bool:
        return bool(self.artifacts or self.notices)
