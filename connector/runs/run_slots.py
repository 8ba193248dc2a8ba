"""Limit concurrent runs, and queue the others fairly between people."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.events import SlackMessage

# Conversations that wait with a lease and a status message. The others wait in the store, without a lease.
_MOST_SHOWN = 200
_MOST_SHOWN_PER_PERSON = 5
# Tickets kept in memory. A conversation without a ticket asks for one when the store next reports it as due.
_MOST_TICKETS_PER_PERSON = 10_000
# Bounds of the delay before the store reports a parked conversation as due, and the target of at most 50 reports a
# second. No store delays the report for longer.
_REST_S, _REPORTS_PER_S = (5.0, 60.0), 50


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits on concurrent runs in one process: in total, per channel, and per person."""

    runs: int = 200
    runs_per_channel: int = 50
    runs_per_person: int = 10


@dataclass(slots=True, eq=False)
class RunSlot:
    """The place of a conversation in the queue.

    Args:
        order: sort key within the tickets of one person: resumed runs first, then by the time of writing.
        is_granted: the conversation has its slot.
        is_shown: the conversation keeps its lease, and its run shows that it waits. False: it is parked.
        changed: set when the slot is granted, and whenever the place in the queue may have changed.
    """

    conversation_id: str
    person: str
    channel: str
    order: tuple[bool, float]
    is_granted: bool = False
    is_shown: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_resumed(self) -> bool:
        return not self.order[0]


class RunSlots:
    """Grants slots for runs: round-robin over people, in the order of writing for each person, resumed runs first.

    A ticket whose person or channel has no slot left is skipped. A conversation that is *parked* gives its lease back
    and keeps its ticket; `wake` (see `watch`) is called when it is to be claimed again.
    """

    def __init__(self, limits: RunLimits | None = None, most_shown_per_person: int = _MOST_SHOWN_PER_PERSON) -> None:
        self._limits = limits or RunLimits()
        self._most_shown_per_person = most_shown_per_person
        self._tickets: dict[str, RunSlot] = {}
        # By person; the first person is the next one to be served.
        self._waiting: dict[str, list[RunSlot]] = {}
        self._shown: set[RunSlot] = set()
        self._running = 0
        self._running_of: Counter[str] = Counter()
        self._running_in: Counter[str] = Counter()
        self._wake: Callable[[str], None] = lambda _: None

    def watch(self, wake: Callable[[str], None]) -> None:
        """Call `wake(conversation_id)` for a parked conversation that is to be claimed."""
        self._wake = wake

    def enter(self, conversation_id: str, message: SlackMessage, *, is_resumed: bool = False) -> RunSlot:
        """Return the ticket of a conversation, which is a new one if it has none for the author of this message."""
        person, channel = f"{message.team}:{message.user}", f"{message.team}:{message.channel}"
        ticket = self._tickets.get(conversation_id)
        if ticket is not None and ticket.person != person and not ticket.is_granted:
            self.leave(conversation_id)
            ticket = None
        if ticket is not None:
            return ticket
        ticket = RunSlot(conversation_id, person, channel, (not is_resumed, float(message.ts)))
        if self._has_room(ticket):
            self._tickets[conversation_id] = ticket
            ticket.is_shown = True
            self._grant(ticket)
        elif is_resumed or len(self._waiting.get(person, ())) < _MOST_TICKETS_PER_PERSON:
            self._tickets[conversation_id] = ticket
            insort(self._waiting.setdefault(person, []), ticket, key=lambda each: each.order)
            if is_resumed or self._may_show(person):
                self._show(ticket)
        return ticket

    def leave(self, conversation_id: str) -> None:
        """Release the slot or the place in the queue, if the conversation has one."""
        ticket = self._tickets.pop(conversation_id, None)
        if ticket is None:
            return
        if ticket.is_granted:
            self._running -= 1
            self._running_of -= Counter((ticket.person,))
            self._running_in -= Counter((ticket.channel,))
        else:
            self._dequeue(ticket)
        while (following := self._next()) is not None:
            self._dequeue(following)
            if (others := self._waiting.pop(following.person, None)) is not None:
                self._waiting[following.person] = others  # the person goes to the end
            self._grant(following)
        self._show_more()
        for each in self._shown:
            each.changed.set()

    def place(self, ticket: RunSlot) -> int:
        """Return how many slots are granted until this ticket has one, if every waiting person is served in turn."""
        index = self._waiting[ticket.person].index(ticket)
        place = index + 1
        is_earlier = True
        for person, waiting in self._waiting.items():
            if person == ticket.person:
                is_earlier = False
            else:
                place += min(len(waiting), index + is_earlier)
        return place

    def obstacle(self, ticket: RunSlot) -> tuple[int, str]:
        """Return why a ticket waits: the number of active runs, and the limit that they reach."""
        if (of_person := self._running_of[ticket.person]) >= self._limits.runs_per_person:
            return of_person, "person"
        if (in_channel := self._running_in[ticket.channel]) >= self._limits.runs_per_channel:
            return in_channel, "channel"
        return self._running, "process"

    @property
    def rest_s(self) -> float:
        """For how long the store need not report a parked conversation."""
        shortest_s, longest_s = _REST_S
        return min(max(len(self._tickets) / _REPORTS_PER_S, shortest_s), longest_s)

    def _has_room(self, ticket: RunSlot) -> bool:
        return (
            self._running < self._limits.runs
            and self._running_in[ticket.channel] < self._limits.runs_per_channel
            and self._running_of[ticket.person] < self._limits.runs_per_person
        )

    def _next(self) -> RunSlot | None:
        """Return the ticket that is granted next, if there is room for any."""
        if self._running >= self._limits.runs:
            return None
        found = None
        for person, waiting in self._waiting.items():
            if self._running_of[person] < self._limits.runs_per_person:
                ticket = next(filter(self._has_room, waiting), None)
                if ticket is not None and ticket.is_resumed:
                    return ticket
                found = found or ticket
        return found

    def _grant(self, ticket: RunSlot) -> None:
        self._running += 1
        self._running_of[ticket.person] += 1
        self._running_in[ticket.channel] += 1
        ticket.is_granted = True
        ticket.changed.set()
        if not ticket.is_shown:
            ticket.is_shown = True
            self._wake(ticket.conversation_id)

    def _dequeue(self, ticket: RunSlot) -> None:
        self._shown.discard(ticket)
        waiting = self._waiting[ticket.person]
        waiting.remove(ticket)
        if not waiting:
            del self._waiting[ticket.person]

    def _may_show(self, person: str) -> bool:
        of_person = sum(each.person == person for each in self._shown)
        return len(self._shown) < _MOST_SHOWN and of_person < self._most_shown_per_person

    def _show(self, ticket: RunSlot) -> None:
        ticket.is_shown = True
        self._shown.add(ticket)

    def _show_more(self) -> None:
        """Wake parked conversations while more may be shown."""
        for person, waiting in self._waiting.items():
            for ticket in waiting:
                if not self._may_show(person):
                    break
                if not ticket.is_shown:
                    self._show(ticket)
                    self._wake(ticket.conversation_id)
