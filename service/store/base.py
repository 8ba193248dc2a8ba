"""What a run store does: inboxes, leases, and the runs that are on, one conversation at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.protocols import Claim, InboxEntry, StateChanges


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of an entry.

    Args:
        is_new: it was not known before.
        owner: the process whose lease on the conversation is valid; `None`: nobody's is.
    """

    is_new: bool
    owner: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many entries an inbox has had, as it has counted them: what is there must agree with it.

    Args:
        accepted: all of them.
        left: those that have left it, by their end; `?`: in the time of a version that did not count.
        forgotten: those of them whose ids are not known any more, for they are old.
    """

    accepted: int
    left: Mapping[str, int]
    forgotten: int


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """Everything that is known of a conversation at one moment, for who checks it.

    Args:
        agent: the instance that it goes on with.
        owner: the process that had the lease last; `None`: it was given back.
        is_owned: whether that lease is valid.
        has_run: whether a run is on, or was when its owner died.
        posts: how many of its texts are still to be posted.
        held: messages up to this place start no run by themselves.
        waiting: what waits in the inbox, in order.
        ends: how the entries left the inbox that did, by id.
        order: the ids of all entries that are known, in the order of acceptance.
        damaged: what cannot be read, or does not fit together, in words.
        is_overlooked: whether it has something to do, and nobody will ever be told that it is due.
    """

    agent: str | None
    owner: str | None
    is_owned: bool
    has_run: bool
    posts: int
    held: int
    waiting: tuple[InboxEntry, ...]
    ends: Mapping[str, str]
    order: Sequence[str]
    count: Count
    damaged: tuple[str, ...] = ()
    is_overlooked: bool = False

    def __post_init__(self) -> None:
        """Raise TypeError if a value is of a wrong type, because the store is damaged."""
        texts = [*self.order, *self.ends, *self.ends.values(), *(name for name in (self.agent, self.owner) if name)]
        numbers = [self.held, self.count.accepted, self.count.forgotten, *self.count.left.values()]
        for entry in self.waiting:
            texts += [entry.id, entry.kind]
            numbers.append(entry.seq)
        if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
            raise TypeError("a value is of another type than was written")

    @property
    def has_something_to_do(self) -> bool:
        """Whether a run is on, or an entry waits behind those that are held."""
        return self.has_run or any(entry.seq > self.held for entry in self.waiting)


def workspace_of(conversation_id: str) -> str:
    """Return the workspace of a conversation, whose id is `team:channel:thread_ts`."""
    return conversation_id.partition(":")[0]


class RunStore(Protocol):
    """Every method is one atomic step, and may be called by any number of tasks and processes at once.

    Time is the store's own, so that the clocks of its users need not agree. A step whose answer was lost can be asked
    for once more: it then gives what it gave, or would have given, the first time.

    All raise StoreAway where the store cannot be reached just now, and StoreError where it cannot be used.
    """

    async def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        """Keep an entry at the end of the conversation's inbox, and wake whoever owns the conversation.

        One whose id is known changes nothing. A conversation without an owner is due two seconds from now: whoever
        admits has that long to claim it.
        """
        ...

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        """Own the conversation for so long; `None`: somebody else's lease is valid.

        The token is higher than every one before it. An owner who asks again gets a new token, too.
        """
        ...

    async def renew(self, conversation_id: str, token: int, lease_s: float) -> int:
        """Own the conversation for so long from now; returns the last place in its inbox.

        A lease that has run out, and that nobody has claimed since, is renewed like any other.

        Raises:
            LeaseLost: somebody has claimed it since.
        """
        ...

    async def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        """What waits in the inbox behind this place, in order.

        Raises:
            LeaseLost: as in `renew`.
        """
        ...

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        """Write all of it down, or nothing. What is closed already, or not there, is left as it is.

        Raises:
            LeaseLost: as in `renew`.
        """
        ...

    async def release(self, conversation_id: str, token: int, seen: int) -> bool:
        """Give the lease back, unless an entry waits behind the place `seen`: then False.

        Raises:
            LeaseLost: as in `renew`.
        """
        ...

    async def hand_over(self, conversation_id: str, token: int, rest_s: float = 0.0) -> None:
        """Give the lease back as things are: if there is something to do, the conversation is due after `rest_s`.

        `rest_s` is at most LONGEST_REST_S.

        Raises:
            LeaseLost: as in `renew`.
        """
        ...

    async def due(self, workspace: str, most: int) -> list[str]:
        """Conversations of a workspace that have something to do and no valid lease, in the order of waiting longest.

        Something to do is a run that is on, or an entry that waits behind those that are held.
        """
        ...

    async def woken(self, owner: str) -> Sequence[str]:
        """Wait for news in conversations that this process owns; returns them. An empty answer means: ask again."""
        ...

    async def agent_of(self, conversation_id: str) -> str | None:
        """The agent that was named last with an entry; `None`: none was."""
        ...

    async def conversations(self) -> list[str]:
        """All that are known."""
        ...

    async def known(self, conversation_id: str) -> ConversationRecord | None:
        """All about one; `None`: there is none."""
        ...

    async def strays(self) -> list[str]:
        """The ids of entries that belong to no conversation that is known; there should be none."""
        ...

    async def rested(self, since: float) -> list[str]:
        """Conversations in which nothing has happened since then, in seconds since the epoch."""
        ...

    async def tidy(self) -> None:
        """Forget what is of no use to anybody any more: for who serves, now and then."""
        ...

    async def forget(self, conversation_id: str) -> bool:
        """Forget a conversation that has no owner and nothing to do; whether it was one."""
        ...

    async def aclose(self) -> None:
        """Let go of it, once all that is on its way is written."""
        ...
