"""What people wrote to a run and its loop does not have yet."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from connector.names import WAIT_S, mentioned_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from connector.messages import Message
    from connector.names import Names
    from connector.protocols import Instance

# What is to be read at once does not wait long for the name of its author.
_URGENT_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message that the gate let in: for whom it is, and what a model reads of it."""

    message: Message
    instance: Instance
    prompt: str

    @property
    def is_urgent(self) -> bool:
        """Whether it is to be read at once: it begins with `!`."""
        return self.prompt.startswith("!")

    @property
    def people(self) -> set[str]:
        """Those whose names a model reads in it."""
        return {self.message.user, *mentioned_in(self.prompt)}


class Inbox:
    """Messages in the order of their arrival.

    Each is ready for the loop once the names in it are known or have been waited for long enough. An urgent one does
    not wait long, and takes along what stands before it. What a stop finds here it holds back: that starts no run by
    itself. Of what is named, people have been told that it waits.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._waiting: list[Inbound] = []
        self._ready: set[str] = set()
        self._held_back = 0
        self._named = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, inbound: Inbound) -> bool:
        return inbound in self._waiting

    @property
    def messages(self) -> list[Inbound]:
        return list(self._waiting)

    @property
    def unnamed(self) -> list[Inbound]:
        return self._waiting[self._named :]

    @property
    def starts_a_run(self) -> bool:
        return len(self._waiting) > self._held_back

    def add(self, inbound: Inbound) -> None:
        self._waiting.append(inbound)

    def take_back(self, inbound: Inbound) -> None:
        """Put a message before all others, and hold it back."""
        self._waiting.insert(0, inbound)
        self._held_back += 1

    def remove(self, inbound: Inbound) -> None:
        self._waiting.remove(inbound)

    def hand_over(self) -> list[Inbound]:
        """Take everything out."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def hold_back(self) -> None:
        self._held_back = len(self._waiting)

    def name_held_back(self) -> int:
        """Count what is held back; it is named now."""
        self._named = self._held_back
        return self._named

    def name_all(self) -> int:
        """Count everything; it is named now."""
        self._named = len(self._waiting)
        return self._named

    def ready_for(self, instance: Instance) -> list[Inbound]:
        """What this instance's loop may have now. What is for another one keeps nothing up."""
        its_own = (inbound for inbound in self._waiting if inbound.instance == instance)
        return list(takewhile(lambda inbound: inbound.message.id in self._ready, its_own))

    async def get_ready(self, inbound: Inbound) -> None:
        """Wait until this message is ready, if it still waits."""
        await self._get_ready((inbound,))
        if inbound.is_urgent and inbound in self._waiting:
            self._ready.update(before.message.id for before in self._waiting[: self._waiting.index(inbound)])

    async def get_all_ready(self) -> None:
        await self._get_ready([inbound for inbound in self._waiting if inbound.message.id not in self._ready])

    async def _get_ready(self, messages: Collection[Inbound]) -> None:
        people = {user for inbound in messages for user in inbound.people}
        is_urgent = any(inbound.is_urgent for inbound in messages)
        await self._names.learn(people, _URGENT_WAIT_S if is_urgent else WAIT_S)
        self._ready.update(inbound.message.id for inbound in messages)
