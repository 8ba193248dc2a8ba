"""What a log store does; all that branches mean is decided in `tree`, the same for every store."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from orchestrator_interactive.interactions.errors import Fenced, WriteConflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.tree import Piece, Tree


@dataclass(frozen=True, slots=True)
class Log:
    """A conversation's log but for its states.

    Args:
        version: grows by one with every commit.
        tree: its branches; the current one's end is up to date here as everywhere.
    """

    version: int
    tree: Tree


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to a log, all of it or nothing.

    Args:
        version: the log's version before it; 0: there is none yet.
        end, written: of the current branch afterwards; states and seconds since the epoch.
        tree: the branches afterwards, where anything but the current one's end and time is another; a new log has one.
        nodes: new states, all in the current branch's segment, whose indices go on from its last own one.
        cuts: states to forget.
        fence: the token of whoever writes; nothing is written where the log's fence is higher. `None`: not asked.
        id: the change's own, by which it is known again when it is asked for once more.
    """

    version: int
    end: int
    written: float
    tree: Tree | None = None
    nodes: Sequence[Node] = ()
    cuts: Sequence[Piece] = ()
    fence: int | None = None
    id: str = field(default_factory=partial(secrets.token_hex, 8), compare=False)


def conflict(key: Key) -> WriteConflict:
    return WriteConflict(
        f"Somebody else has written to conversation {key.conversation_id} of {key.agent_id}: "
        "nothing was written. Look at it again, then repeat what still makes sense."
    )


def fenced(key: Key) -> Fenced:
    return Fenced(
        f"Another owner has taken conversation {key.conversation_id} of {key.agent_id} over: nothing was written. "
        "Leave it to them."
    )


def is_within(node: Node, since: float, until: float, kinds: Sequence[str]) -> bool:
    """Whether a scan with these bounds finds the state."""
    envelope = node.envelope
    return since <= envelope["ts"] < until and (not kinds or envelope["t"] in kinds)


def refuse_orphan(change: Change) -> None:
    """Raise ValueError where the first change of a log does not bring its tree."""
    if not change.version and change.tree is None:
        raise ValueError("The first change of a log brings its tree.")


def refuse_broken_text(*texts: str) -> None:
    """Raise ValueError where a text holds half of a surrogate pair: no file can keep it."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise ValueError(f"{text!r} holds half of a character, which no store can keep: leave it out.") from e


class LogStore(Protocol):
    """Keeps logs. Every method is atomic, and may be called by any number of tasks at once.

    All raise StoreError where the store cannot be used: the message says why and what to do. It is StoreAway where
    trying again later makes sense.
    """

    async def load(self, key: Key) -> Log | None:
        """The log; `None`: there is none."""
        ...

    async def commit(self, key: Key, change: Change) -> None:
        """Write a change.

        Where the caller is cancelled, it was written, or never will be, once the next call for this key is answered.
        After StoreAway it may have been written; the same change, asked for again, is written once.

        Raises:
            WriteConflict: the log has another version than the change expects; nothing was written. It is Fenced where
                the log's fence is higher than the change's.
        """
        ...

    async def fence(self, key: Key, token: int) -> None:
        """Keep out whoever writes with a lower token; the log need not be there yet, and may be removed meanwhile.

        Raises:
            Fenced: a higher one has been here.
        """
        ...

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        """The states [start, stop) that stand in a segment, in order; those that are not there are left out."""
        ...

    async def keys(self) -> list[Key]:
        """Whose logs there are, the one written last first; those of the same moment in the order of their ids."""
        ...

    def scan(self, since: float, until: float, kinds: Sequence[str]) -> AsyncIterator[tuple[Key, Node]]:
        """The states of all logs from [since, until), in seconds since the epoch; of these types, if any are named.

        The logs come in any order, the states of one by segment and index. What is written meanwhile may be among
        them or not. Damaged ones have the time 0 and the type `records.DAMAGED`.
        """
        ...

    async def remove(self, key: Key, version: int) -> None:
        """Forget a log with all its states.

        Raises:
            WriteConflict: it has another version.
        """
        ...

    async def save_agent(self, agent_id: str, config: str) -> None:
        """Keep the configuration of an agent, JSON; one of this id is replaced.

        Raises:
            ValueError: the id or the configuration holds half of a surrogate pair.
        """
        ...

    async def agents(self) -> dict[str, str]:
        """The configurations of all agents by id, in the order of the ids."""
        ...

    async def forget_agent(self, agent_id: str) -> None: ...

    async def tidy(self) -> None:
        """Forget what is of no use to anybody any more: for who serves, now and then."""
        ...

    async def aclose(self) -> None:
        """Let go of it, once all that is on its way is written."""
        ...
