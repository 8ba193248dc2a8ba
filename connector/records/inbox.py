"""What people wrote in a conversation and its log does not have yet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Self

from connector.events import SlackMessage, checked_ts
from connector.slack_api.users import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from connector.slack_api.users import Users

# What is to be read at once does not wait long for the name of its author.
_URGENT_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that the gate let in: for whom it is, and what a model reads of it.

    Args:
        id: its identity as an entry of the inbox, and in the log.
        seq: its place in the order of acceptance.
        edited_ts: when its author changed it last, or took it back; blank: never.
        is_told: whether 📨 was put on it because it waits for a slot.
    """

    message: SlackMessage
    instance: str
    prompt: str
    id: str
    seq: int = 0
    edited_ts: str = ""
    is_told: bool = False

    @property
    def is_about_another(self) -> bool:
        """Whether it corrects a message, or takes it back, that was read already."""
        return self.id != self.message.id

    @property
    def written_s(self) -> float:
        """When its author wrote it, or changed what it is about, in seconds since the epoch."""
        return float(self.edited_ts if self.is_about_another and self.edited_ts else self.message.ts)

    @property
    def is_urgent(self) -> bool:
        """Whether it is to be read at once: it begins with `!`."""
        return self.prompt.startswith("!")

    @property
    def mentioned(self) -> list[str]:
        """The people whom it mentions and whose names a model is to read in it: Slack sends some with their names."""
        return [user for user in self.message.mentioned if f"@{user}" in self.prompt]

    def written(self) -> dict[str, Any]:
        """As an inbox keeps it."""
        written = {"message": asdict(self.message), "instance": self.instance, "prompt": self.prompt}
        return {**written, "edited_ts": self.edited_ts, "is_told": self.is_told}

    @classmethod
    def read(cls, data: Mapping[str, Any], entry_id: str, seq: int) -> Self:
        message = SlackMessage(**{**data["message"], "files": tuple(data["message"]["files"])})
        for ts in (message.ts, data["edited_ts"] or message.ts):
            checked_ts(ts)
        return cls(message, data["instance"], data["prompt"], entry_id, seq, data["edited_ts"], data["is_told"])


class Inbox:
    """Messages in the order in which they were written, from their acceptance until the log has them.

    Each is ready for the loop once the names in it are known or have been waited for long enough. An urgent one does
    not wait long, and takes along what stands before it. What was given to a loop stays here until it is settled. What
    a stop found here that is not older than the stop starts no run by itself: none of that is past the place `held`. Up
    to the place `named`, people have been told of those that wait. While a thread is read from Slack, what was written
    after the start of that part waits: something older may come.
    """

    def __init__(self, names: Users, held: int) -> None:
        self.held = held
        self.named = 0
        # Up to this place an earlier owner had held what waits.
        self._inherited = held
        # When the last stop was said.
        self._held_s = -inf
        self._names = names
        # By id, in order once they are sorted.
        self._unsorted: dict[str, PendingMessage] = {}
        self._is_sorted = True
        self._given: dict[str, PendingMessage] = {}
        self._ready: set[str] = set()
        # By the entry that asks for it: from when on a thread is still to be read.
        self._unread_since: dict[str, float] = {}

    @property
    def _waiting(self) -> dict[str, PendingMessage]:
        if not self._is_sorted:
            in_order = sorted(self._unsorted.values(), key=_order)
            self._unsorted, self._is_sorted = {each.id: each for each in in_order}, True
        return self._unsorted

    @property
    def waiting(self) -> list[PendingMessage]:
        """What no loop was given."""
        return list(self._waiting.values())

    @property
    def given(self) -> list[PendingMessage]:
        """What a loop was given."""
        return list(self._given.values())

    @property
    def unnamed(self) -> list[PendingMessage]:
        """Those of the waiting messages that no notice has spoken of."""
        return [each for each in self._waiting.values() if each.seq > self.named and not each.is_about_another]

    @property
    def beginning(self) -> PendingMessage | None:
        """The message that starts a run; what says what has become of another one starts none."""
        waiting = self._waiting.values()
        return next((each for each in waiting if not self.is_held(each) and not each.is_about_another), None)

    @property
    def starts_a_run(self) -> bool:
        return self.beginning is not None

    def hold(self, stopped_s: float) -> int:
        """What is here and was written until then starts no run by itself; returns `held`."""
        self._held_s = max(self._held_s, stopped_s)
        self.held = max(self.held, *(each.seq for each in self._all() if each.written_s <= stopped_s), 0)
        return self.held

    def is_held(self, inbound: PendingMessage) -> bool:
        """Whether a stop has found it here."""
        is_old = inbound.written_s <= self._held_s
        return inbound.seq <= (self.held if is_old else self._inherited)

    def may_be_read(self, inbound: PendingMessage) -> bool:
        """Whether nothing older can come any more of a thread that is being read from Slack."""
        return inbound.written_s <= min(self._unread_since.values(), default=inbound.written_s)

    @property
    def expected(self) -> list[str]:
        """The entries that ask for threads that are still to be read."""
        return list(self._unread_since)

    def expect(self, entry_id: str, since: str) -> None:
        """A thread is to be read from Slack from this time on, as an entry asks."""
        self._unread_since[entry_id] = float(since)

    def expect_no_more(self, entry_id: str) -> None:
        """What was in the thread is here now."""
        self._unread_since.pop(entry_id, None)

    def add(self, inbound: PendingMessage) -> None:
        last = next(reversed(self._unsorted.values()), inbound)
        self._unsorted[inbound.id] = inbound
        self._is_sorted = self._is_sorted and _order(last) <= _order(inbound)

    def find(self, message_id: str) -> PendingMessage | None:
        return self._waiting.get(message_id) or self._given.get(message_id)

    def latest_edit(self, message_id: str) -> str:
        """When a message was changed last, as far as that is here; blank: never."""
        return max((each.edited_ts for each in self._all() if each.message.id == message_id), default="")

    def replace(self, inbound: PendingMessage) -> None:
        """Put a message into the place of the one with its id."""
        (self._given if inbound.id in self._given else self._waiting)[inbound.id] = inbound

    def give(self, inbound: PendingMessage) -> None:
        """A loop has it."""
        self._given[inbound.id] = self._waiting.pop(inbound.id)

    def is_given(self, inbound: PendingMessage) -> bool:
        return inbound.id in self._given

    def remove(self, inbounds: Iterable[PendingMessage]) -> None:
        """Forget messages that have come to their end."""
        for each in inbounds:
            self._waiting.pop(each.id, None)
            self._given.pop(each.id, None)
            self._ready.discard(each.id)

    def take_back(self) -> None:
        """No loop has any of them any more."""
        self._unsorted, self._given = {each.id: each for each in self._all()}, {}
        self._is_sorted = False

    def name_all(self) -> None:
        """What waits is named now."""
        self.named = max((each.seq for each in self._waiting.values()), default=self.named)

    def name_held(self, read: Collection[str]) -> int:
        """Count what is held and not among what was `read`; it is named now."""
        self.named = max(self.named, self.held)
        held = [each for each in self._all() if self.is_held(each) and not each.is_about_another]
        return sum(each.id not in read for each in held)

    def next_for(self, instance: str) -> PendingMessage | None:
        """What this instance's loop may have now. What is for another one keeps nothing up."""
        first = next((each for each in self._waiting.values() if each.instance == instance), None)
        return first if first is not None and first.id in self._ready and self.may_be_read(first) else None

    async def get_ready(self, messages: Collection[PendingMessage]) -> None:
        """Wait until these messages are ready, those of them that still wait."""
        authors = [inbound.message.user for inbound in messages]
        mentioned = [user for inbound in messages for user in inbound.mentioned]
        is_urgent = any(inbound.is_urgent for inbound in messages)
        await self._names.learn(authors, mentioned, _URGENT_WAIT_S if is_urgent else WAIT_S)
        self._ready.update(inbound.id for inbound in messages)
        urgent = {inbound.id for inbound in messages if inbound.is_urgent and inbound.id in self._waiting}
        if urgent:
            waiting = list(self._waiting)
            last = max(number for number, each in enumerate(waiting) if each in urgent)
            self._ready.update(waiting[:last])

    async def get_all_ready(self) -> None:
        await self.get_ready([each for each in self._waiting.values() if each.id not in self._ready])

    def _all(self) -> Iterable[PendingMessage]:
        return chain(self._given.values(), self._waiting.values())


def _order(inbound: PendingMessage) -> tuple[float, int]:
    return inbound.written_s, inbound.seq
