"""The ways in which a run starts in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connector.protocols import RunFailed


@dataclass(frozen=True, slots=True)
class New:
    """Start with the first message, which is not delivered yet."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Resume a run of another process from its log; `delivered_ids` are the ids of the delivered messages."""

    delivered_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unrecoverable:
    """Report failure: the log of a run of another process is unreadable."""

    why: RunFailed


@dataclass(frozen=True, slots=True)
class Finished:
    """Only deliver the remaining posts: another process finished the run.

    Args:
        delivered_ids: ids of the delivered messages.
    """

    delivered_ids: frozenset[str] = frozenset()


StartMode = New | Resumed | Unrecoverable | Finished
