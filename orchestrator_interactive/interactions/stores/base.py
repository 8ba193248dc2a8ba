"""The interface of a log store, and what all stores share: errors, and checks of stored rows that detect damage.

`tree` decides what branches mean, the same for every store.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.errors import DamagedLog, Fenced, WriteConflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.tree import Piece, Tree


@dataclass(frozen=True, slots=True)
class Log:
    """The metadata of a conversation's log, without its states.

    Args:
        version: increases by one with every commit.
        tree: branches, with the current branch's end.
    """

    version: int
    tree: Tree


@dataclass(frozen=True, slots=True)
class Change:
    """The content of one atomic commit.

    Args:
        version: version of the log before the commit; 0 for a new log.
        end, written: end of the current branch in states and its time in seconds since the epoch, after the commit.
        tree: branches after the commit, if more than the current branch's end and time changes; required for a new log.
        nodes: new states in the current branch's segment, with consecutive indices after its last one; or stored states
            with other data.
        cuts: states to delete.
        fence: fencing token of the writer; the commit is refused if the log has a higher one. `None`: no check.
        id: idempotency key; a repeated commit with the same id is written once.
    """

    version: int
    end: int
    written: float
    tree: Tree | None = None
    nodes: Sequence[Node] = ()
    cuts: Sequence[Piece] = ()
    fence: int | None = None
    id: str = field(default_factory=lambda: os.urandom(8).hex(), compare=False)


class LogStore(Protocol):
    """Stores logs. Every method is atomic and safe for concurrent tasks.

    All methods raise StoreError with a reason and a remedy if the store cannot be used. It is StoreUnavailable if a
    later retry may succeed.
    """

    async def load(self, key: Key) -> Log | None:
        """Return the log; `None` if there is none."""
        ...

    async def commit(self, key: Key, change: Change) -> None:
        """Write a change.

        After a cancellation, the outcome is final once the next call for this key returns. After StoreUnavailable the
        change may have been written; a retry with the same change writes it once.

        Raises:
            WriteConflict: the log's version differs from the change's; nothing was written. Fenced if the log's fencing
                token is higher than the change's.
        """
        ...

    async def fence(self, key: Key, token: int) -> None:
        """Refuse writers with a lower fencing token; works before the log exists and survives its removal.

        Raises:
            Fenced: the log has a higher token.
        """
        ...

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        """Return the stored states [start, stop) of a segment in order; missing ones are left out."""
        ...

    async def keys(self) -> list[Key]:
        """Return the keys of all logs, the most recently written first; ties are ordered by ids."""
        ...

    async def remove(self, key: Key, version: int, fence: int | None = None) -> None:
        """Delete a log with all its states; `fence` is the fencing token as in `Change`.

        Raises:
            WriteConflict: the log has another version. Fenced if its fencing token is higher.
        """
        ...

    async def save_agent(self, agent_id: str, config: str) -> None:
        """Store the configuration of an agent (JSON), replacing an earlier one.

        Raises:
            ValueError: the id or the configuration contains a lone surrogate.
        """
        ...

    async def agents(self) -> dict[str, str]:
        """Return the configurations of all agents by id, ordered by id."""
        ...

    async def forget_agent(self, agent_id: str) -> None: ...

    async def delete_expired(self) -> None:
        """Delete expired data; a service calls this periodically."""
        ...

    async def aclose(self) -> None:
        """Close the store after pending writes have finished."""
        ...


def conflict(key: Key) -> WriteConflict:
    return WriteConflict(
        f"Another writer changed conversation {key.conversation_id} of {key.agent_id}: "
        "nothing was written. Read it again, then repeat what is still valid."
    )


def fenced(key: Key) -> Fenced:
    return Fenced(
        f"Another owner has taken over conversation {key.conversation_id} of {key.agent_id}: nothing was written. "
        "Stop writing to it."
    )


def refuse_broken_text(*texts: str) -> None:
    """Raise ValueError if a text contains a lone surrogate, which cannot be encoded."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise ValueError(f"{text!r} contains half of a character (a lone surrogate): remove it.") from e


def log_of_row(key: Key, version: Any, end: Any, written: Any, tree: Any) -> Log:
    """Build the log of a row; `tree` is JSON.

    Raises:
        DamagedLog: the row is invalid.
    """
    with suppress(TypeError, ValueError):
        found = trees.from_json(tree).with_end(int(end), float(written))
        if 0 <= found.head.base <= found.head.end <= trees.MAX_STATES:
            return Log(int(version), found)
    raise DamagedLog(
        f"The stored branches of conversation {key.conversation_id} of {key.agent_id} are damaged: "
        "restore it from a backup."
    )
