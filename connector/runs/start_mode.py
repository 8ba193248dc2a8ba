"""With what a run begins in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connector.protocols import RunFailed


@dataclass(frozen=True, slots=True)
class New:
    """With its first message, which no log has."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where its log ends, which has the messages of these ids: another process had begun it."""

    read: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unrecoverable:
    """With nothing: what another process had begun cannot be read any more."""

    why: RunFailed


@dataclass(frozen=True, slots=True)
class Finished:
    """With its end: another process had written its last word down, which is only posted, where it was not.

    Args:
        read: the ids of the messages that its log has.
    """

    read: frozenset[str] = frozenset()


StartMode = New | Resumed | Unrecoverable | Finished
