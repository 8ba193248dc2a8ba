"""What runs have left to be done when they are over: kept with the lease until it is."""

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
    """A sentence of the service's own that belongs to no run that is on.

    Args:
        message: what it answers; it is posted where that stands.
        key: tells it from every other post.
        text: in plain words.
        is_inherited: whether a process that is dead may have posted it.
    """

    message: SlackMessage
    key: str
    text: str
    is_inherited: bool = False

    @property
    def place(self) -> ThreadAddress:
        return self.message.place

    def has_posted(self, key: str) -> bool:
        """Whether a post with this key is this notice."""
        return key == self.key

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """What was written.

        Raises:
            KeyError, TypeError, ValueError: it cannot be read.
        """
        message = SlackMessage(**{**data["message"], "files": tuple(data["message"]["files"])})
        return cls(message, data["key"], data["text"], data["is_inherited"])


@dataclass(frozen=True, slots=True)
class PendingCleanup:
    """What is not away yet, and what is not said yet."""

    traces: tuple[RunArtifacts, ...] = ()
    notices: tuple[Notice, ...] = ()

    def written(self) -> dict[str, Any]:
        """As it stands with the lease; empty where nothing is left."""
        kept = {"traces": [asdict(each) for each in self.traces], "notices": [asdict(each) for each in self.notices]}
        return {kind: left for kind, left in kept.items() if left}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        """What was written, be it by an older version.

        Raises:
            KeyError, TypeError, ValueError: it cannot be read.
        """
        traces = tuple(RunArtifacts.read(each) for each in data.get("traces", ()))
        return cls(traces, tuple(Notice.read(each) for each in data.get("notices", ())))

    @property
    def inherited(self) -> PendingCleanup:
        """The same, of a process that is dead: calls of it may still be on their way."""
        traces = tuple(replace(each, is_inherited=True) for each in self.traces)
        return PendingCleanup(traces, tuple(replace(each, is_inherited=True) for each in self.notices))

    def __bool__(self) -> bool:
        return bool(self.traces or self.notices)
