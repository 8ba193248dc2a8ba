"""Pending messages of a conversation: accepted, not yet delivered."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from connector.slack_api.users import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from connector.message_text import SlackFile
    from connector.protocols import RunService
    from connector.records import PendingMessage
    from connector.routing import Router
    from connector.slack_api.users import Users

# How long an urgent message waits for the display names in it.
_URGENT_WAIT_S = 0.2


class Inbox:
    """Pending messages, ordered by the time of writing.

    A message is ready for the loop once its display names are known or their lookup has timed out. An urgent one times
    out sooner, and makes the messages before it ready, too. Messages given to a loop stay here until their delivery is
    checked. While a thread is read from Slack, messages newer than the start of the requested part wait for older ones.

    `held_seq`: the highest sequence number of a message that a stop keeps from starting a run, for the next owner.
    `announced_seq`: notices have counted the pending messages up to this sequence number.
    `stopped_s`: time of the latest stop, in seconds since the epoch; an older message that arrives later is held, too.
    """

    def __init__(self, users: Users, held_seq: int, stopped_s: float = 0.0) -> None:
        self.held_seq = self.announced_seq = held_seq
        self.stopped_s = stopped_s
        # `held_seq` as an earlier owner stored it.
        self._inherited = held_seq
        # Sequence numbers of the messages that a stop holds, each older than its stop.
        self._held: set[int] = set()
        # Those up to `announced_seq` that no notice has counted: no stop held them then.
        self._uncounted: set[int] = set()
        self._users = users
        # `waiting`; in order if `_is_sorted`.
        self._unsorted: dict[str, PendingMessage] = {}
        self._is_sorted = True
        # Messages given to a loop, by id.
        self.given: dict[str, PendingMessage] = {}
        self._ready: set[str] = set()
        # By the entry id of an unfinished catch-up: start of the part of the thread that is still to be read.
        self.unread_since: dict[str, float] = {}

    @property
    def waiting(self) -> dict[str, PendingMessage]:
        """Messages not given to a loop, by id."""
        if not self._is_sorted:
            in_order = sorted(self._unsorted.values(), key=_order)
            self._unsorted, self._is_sorted = {each.id: each for each in in_order}, True
        return self._unsorted

    @property
    def depth(self) -> int:
        """The number of messages that are still in the inbox."""
        return len(self.given) + len(self._unsorted)

    @property
    def run_starter(self) -> PendingMessage | None:
        """The message that starts the next run; held messages, late edits, late deletions and notes start none."""
        waiting = self.waiting.values()
        return next((each for each in waiting if not self.is_held(each) and not each.starts_no_run), None)

    def hold(self, stopped_s: float) -> bool:
        """Keep messages written up to this time from starting a run, also those that arrive later.

        Returns whether this is the latest stop.
        """
        older = [each for each in self._all() if each.written_s <= stopped_s]
        self._uncounted |= {each.seq for each in older if each.seq <= self.announced_seq and not self.is_held(each)}
        self._held.update(each.seq for each in older)
        is_latest = stopped_s > self.stopped_s
        self.stopped_s = max(self.stopped_s, stopped_s)
        return is_latest

    def latest_held_seq(self) -> int:
        """Return `held_seq`, which now includes all messages that are held."""
        self.held_seq = max(self.held_seq, *self._held, 0)
        return self.held_seq

    def is_held(self, inbound: PendingMessage) -> bool:
        """Return whether a stop keeps the message from starting a run."""
        was_held = inbound.seq <= self._inherited and inbound.written_s <= self.stopped_s
        return inbound.seq in self._held or was_held

    def may_be_read(self, inbound: PendingMessage) -> bool:
        """Return whether no catch-up can still find an older message."""
        return inbound.written_s <= min(self.unread_since.values(), default=inbound.written_s)

    def add(self, inbound: PendingMessage) -> None:
        last = next(reversed(self._unsorted.values()), inbound)
        self._unsorted[inbound.id] = inbound
        self._is_sorted = self._is_sorted and _order(last) <= _order(inbound)
        if max(inbound.written_s, float(inbound.edited_ts or 0)) <= self.stopped_s:
            self._held.add(inbound.seq)

    def find(self, message_id: str) -> PendingMessage | None:
        return self.waiting.get(message_id) or self.given.get(message_id)

    def only_in(self, inbound: PendingMessage, files: Iterable[SlackFile]) -> list[SlackFile]:
        """Return those of the files of a message that no other message here has."""
        others = {
            file.id for each in self._all() if each.message.id != inbound.message.id for file in each.message.files
        }
        return [each for each in files if each.id not in others]

    def replace(self, inbound: PendingMessage) -> None:
        """Replace the message with the same id."""
        (self.given if inbound.id in self.given else self.waiting)[inbound.id] = inbound

    def give(self, inbound: PendingMessage) -> None:
        """Record that a message was given to a loop."""
        self.given[inbound.id] = self.waiting.pop(inbound.id)

    def give_notes(self, instance: str) -> dict[str, str]:
        """Give the waiting notes to a run that is about to read its prompt; returns their texts by id."""
        notes = [each for each in self.waiting.values() if each.is_note and each.instance == instance]
        for each in notes:
            self.give(each)
        return {each.id: each.prompt for each in notes}

    def asides(self) -> list[PendingMessage]:
        return [each for each in self._all() if each.is_aside]

    async def asides_now(self, router: Router, runs: RunService, conversation_id: str) -> list[PendingMessage]:
        """Return the asides; the mention by which the author of one takes part may have arrived after it."""
        if asides := self.asides():
            thread = await runs.thread_of(conversation_id)
            for each in asides:
                if router.routed(each.message, thread) is not None and self.find(each.id) is not None:
                    self.replace(replace(each, is_aside=False))
        return self.asides()

    def remove(self, inbounds: Iterable[PendingMessage]) -> None:
        """Remove delivered, withdrawn and refused messages."""
        for each in inbounds:
            self.waiting.pop(each.id, None)
            self.given.pop(each.id, None)
            self._ready.discard(each.id)

    def take_back(self) -> None:
        """Return all given messages to the waiting ones, after their run has ended."""
        self._unsorted, self.given = {each.id: each for each in self._all()}, {}
        self._is_sorted = False

    def take_back_one(self, message_id: str) -> None:
        """Return a message to the waiting ones, if it was given; it has to get ready again."""
        self._ready.discard(message_id)
        if (inbound := self.given.pop(message_id, None)) is not None:
            self._unsorted[message_id], self._is_sorted = inbound, False

    def announce_held_back(self) -> list[PendingMessage]:
        """Return the waiting messages that start no run and that no notice has counted; a notice now counts them.

        If another message starts a run, it reads them: nothing is held then, by `held_seq`.
        """
        if self.run_starter is not None:
            self.held_seq = 0
            return []
        waiting = [each for each in self.waiting.values() if not each.starts_no_run]
        all_held = [each for each in waiting if each.seq > self.announced_seq or each.seq in self._uncounted]
        self._uncounted.clear()
        self.announced_seq = max([self.announced_seq, *(each.seq for each in all_held)])
        self.held_seq = max(self.held_seq, self.announced_seq)
        return all_held

    def announce_held(self, read: Collection[str]) -> int:
        """Count the held messages that are not in `read`, and record that a notice counts them."""
        held = [each for each in self._all() if self.is_held(each) and not each.starts_no_run]
        self.announced_seq = max([self.announced_seq, self.held_seq, *(each.seq for each in held)])
        self._uncounted -= {each.seq for each in held}
        return sum(each.id not in read for each in held)

    def next_for(self, instance: str, may_steer: Callable[[PendingMessage], bool]) -> PendingMessage | None:
        """Return the next message for this instance's loop, if ready. Messages for other instances do not block it.

        Nor do those of users that may not steer: they wait for the next run.
        """
        mine = (
            each for each in self.waiting.values() if each.instance == instance and not each.is_note and may_steer(each)
        )
        first = next(mine, None)
        return first if first is not None and first.id in self._ready and self.may_be_read(first) else None

    async def get_ready(self, messages: Collection[PendingMessage] | None = None) -> None:
        """Wait until these messages, or all, are ready: their names are known or the lookup has timed out."""
        if messages is None:
            messages = [each for each in self.waiting.values() if each.id not in self._ready and not each.is_note]
        authors = [inbound.message.user for inbound in messages if not inbound.message.bot]
        mentioned = [user for inbound in messages for user in inbound.mentioned]
        is_urgent = any(inbound.is_urgent for inbound in messages)
        await self._users.look_up(authors, mentioned, _URGENT_WAIT_S if is_urgent else WAIT_S)
        self._ready.update(inbound.id for inbound in messages)
        urgent = {inbound.id for inbound in messages if inbound.is_urgent and inbound.id in self.waiting}
        if urgent:
            waiting = list(self.waiting)
            last = max(number for number, each in enumerate(waiting) if each in urgent)
            self._ready.update(waiting[:last])

    def _all(self) -> Iterable[PendingMessage]:
        return chain(self.given.values(), self.waiting.values())


def _order(inbound: PendingMessage) -> tuple[float, int]:
    return inbound.written_s, inbound.seq
