"""Pending messages of a conversation: accepted, not yet delivered."""

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

# How long an urgent message waits for the display names in it.
_URGENT_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """An accepted message, its instance, and its text for the model.

    Args:
        id: identity as an inbox entry and in the log.
        seq: sequence number in the order of acceptance.
        edited_ts: ts of the latest edit or deletion; blank: never changed.
        is_marked_accepted: whether it has 📨 because it waits for a slot.
    """

    message: SlackMessage
    instance: str
    prompt: str
    id: str
    seq: int = 0
    edited_ts: str = ""
    is_marked_accepted: bool = False

    @property
    def is_late_change(self) -> bool:
        """Whether it reports an edit or a deletion of a delivered message."""
        return self.id != self.message.id

    @property
    def written_s(self) -> float:
        """Time of the message, or of the edit or deletion that it reports, in seconds since the epoch."""
        return float(self.edited_ts if self.is_late_change and self.edited_ts else self.message.ts)

    @property
    def is_urgent(self) -> bool:
        """Whether it begins with `!`, which requests delivery at once."""
        return self.prompt.startswith("!")

    @property
    def mentioned(self) -> list[str]:
        """The mentioned users whose names are to be looked up. Slack sends some mentions with the name included."""
        return [user for user in self.message.mentioned if f"@{user}" in self.prompt]

    def to_dict(self) -> dict[str, Any]:
        """Return the data of the inbox entry."""
        written = {"message": asdict(self.message), "instance": self.instance, "prompt": self.prompt}
        return {**written, "edited_ts": self.edited_ts, "is_marked_accepted": self.is_marked_accepted}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], entry_id: str, seq: int) -> Self:
        message = SlackMessage(**{**data["message"], "files": tuple(data["message"]["files"])})
        for ts in (message.ts, data["edited_ts"] or message.ts):
            checked_ts(ts)
        return cls(
            message, data["instance"], data["prompt"], entry_id, seq, data["edited_ts"], data["is_marked_accepted"]
        )


class Inbox:
    """Pending messages, ordered by the time of writing.

    A message is ready for the loop once its display names are known or their lookup has timed out. An urgent one times
    out sooner, and makes the messages before it ready, too. Messages given to a loop stay here until their delivery is
    checked. While a thread is read from Slack, messages newer than the start of the requested part wait for older ones.

    `held_seq`: messages up to this sequence number that are older than the last stop start no run by themselves.
    `announced_seq`: notices have counted the pending messages up to this sequence number.
    """

    def __init__(self, users: Users, held_seq: int) -> None:
        self.held_seq = held_seq
        self.announced_seq = 0
        # `held_seq` as an earlier owner stored it.
        self._inherited = held_seq
        # Time of the last stop, in seconds since the epoch.
        self._held_s = -inf
        self._users = users
        # By id; in order if `_is_sorted`.
        self._unsorted: dict[str, PendingMessage] = {}
        self._is_sorted = True
        self._given: dict[str, PendingMessage] = {}
        self._ready: set[str] = set()
        # By catch-up entry id: start of the part of the thread that is still to be read.
        self._unread_since: dict[str, float] = {}

    @property
    def _waiting(self) -> dict[str, PendingMessage]:
        if not self._is_sorted:
            in_order = sorted(self._unsorted.values(), key=_order)
            self._unsorted, self._is_sorted = {each.id: each for each in in_order}, True
        return self._unsorted

    @property
    def waiting(self) -> list[PendingMessage]:
        """Messages not given to a loop."""
        return list(self._waiting.values())

    @property
    def given(self) -> list[PendingMessage]:
        """Messages given to a loop."""
        return list(self._given.values())

    @property
    def unannounced(self) -> list[PendingMessage]:
        """Waiting messages that no notice has counted."""
        return [each for each in self._waiting.values() if each.seq > self.announced_seq and not each.is_late_change]

    @property
    def run_starter(self) -> PendingMessage | None:
        """The message that starts the next run; held messages, late edits and late deletions start none."""
        waiting = self._waiting.values()
        return next((each for each in waiting if not self.is_held(each) and not each.is_late_change), None)

    @property
    def starts_a_run(self) -> bool:
        return self.run_starter is not None

    def hold(self, stopped_s: float) -> int:
        """Keep messages written up to this time from starting a run; returns `held_seq`."""
        self._held_s = max(self._held_s, stopped_s)
        self.held_seq = max(self.held_seq, *(each.seq for each in self._all() if each.written_s <= stopped_s), 0)
        return self.held_seq

    def is_held(self, inbound: PendingMessage) -> bool:
        """Return whether a stop keeps the message from starting a run."""
        is_old = inbound.written_s <= self._held_s
        return inbound.seq <= (self.held_seq if is_old else self._inherited)

    def may_be_read(self, inbound: PendingMessage) -> bool:
        """Return whether no catch-up can still find an older message."""
        return inbound.written_s <= min(self._unread_since.values(), default=inbound.written_s)

    @property
    def expected(self) -> list[str]:
        """Ids of the unfinished catch-ups."""
        return list(self._unread_since)

    def expect(self, entry_id: str, since: str) -> None:
        """Delay messages newer than `since` until this catch-up ends."""
        self._unread_since[entry_id] = float(since)

    def expect_no_more(self, entry_id: str) -> None:
        """End the delay of a catch-up."""
        self._unread_since.pop(entry_id, None)

    def add(self, inbound: PendingMessage) -> None:
        last = next(reversed(self._unsorted.values()), inbound)
        self._unsorted[inbound.id] = inbound
        self._is_sorted = self._is_sorted and _order(last) <= _order(inbound)

    def find(self, message_id: str) -> PendingMessage | None:
        return self._waiting.get(message_id) or self._given.get(message_id)

    def latest_edit(self, message_id: str) -> str:
        """Return the ts of the latest edit of a message among the pending ones; blank: none."""
        return max((each.edited_ts for each in self._all() if each.message.id == message_id), default="")

    def replace(self, inbound: PendingMessage) -> None:
        """Replace the message with the same id."""
        (self._given if inbound.id in self._given else self._waiting)[inbound.id] = inbound

    def give(self, inbound: PendingMessage) -> None:
        """Record that a message was given to a loop."""
        self._given[inbound.id] = self._waiting.pop(inbound.id)

    def is_given(self, inbound: PendingMessage) -> bool:
        return inbound.id in self._given

    def remove(self, inbounds: Iterable[PendingMessage]) -> None:
        """Remove delivered, withdrawn and refused messages."""
        for each in inbounds:
            self._waiting.pop(each.id, None)
            self._given.pop(each.id, None)
            self._ready.discard(each.id)

    def take_back(self) -> None:
        """Return all given messages to the waiting ones, after their run has ended."""
        self._unsorted, self._given = {each.id: each for each in self._all()}, {}
        self._is_sorted = False

    def announce_all(self) -> None:
        """Record that a notice counts all waiting messages."""
        self.announced_seq = max((each.seq for each in self._waiting.values()), default=self.announced_seq)

    def announce_held(self, read: Collection[str]) -> int:
        """Count the held messages that are not in `read`, and record that a notice counts them."""
        self.announced_seq = max(self.announced_seq, self.held_seq)
        held = [each for each in self._all() if self.is_held(each) and not each.is_late_change]
        return sum(each.id not in read for each in held)

    def next_for(self, instance: str) -> PendingMessage | None:
        """Return the next message for this instance's loop, if ready. Messages for other instances do not block it."""
        first = next((each for each in self._waiting.values() if each.instance == instance), None)
        return first if first is not None and first.id in self._ready and self.may_be_read(first) else None

    async def get_ready(self, messages: Collection[PendingMessage]) -> None:
        """Wait until these messages are ready: their display names are known or the lookup has timed out."""
        authors = [inbound.message.user for inbound in messages]
        mentioned = [user for inbound in messages for user in inbound.mentioned]
        is_urgent = any(inbound.is_urgent for inbound in messages)
        await self._users.look_up(authors, mentioned, _URGENT_WAIT_S if is_urgent else WAIT_S)
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
