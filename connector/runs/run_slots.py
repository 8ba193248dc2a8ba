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
# Conversations queued in memory. Another conversation enters the queue when the store next reports it as due.
_MOST_SLOTS_PER_PERSON = 10_000
# Bounds of the delay before the store reports a parked conversation as due, and the target of at most 50 reports a
# second. No store delays the report for longer.
_DUE_IN_S, _REPORTS_PER_S = (5.0, 60.0), 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits on concurrent runs in one process: in total, per workspace (`None`: none), channel and person."""

    runs: int = 200
    runs_per_workspace: int | None = None
    runs_per_channel: int = 50
    runs_per_person: int = 10


@dataclass(slots=True, eq=False)
class RunSlot:
    """The place of a conversation in the queue.

    Args:
        order: sort key among the conversations of one person: resumed runs first, then by the time of writing.
        is_granted: the conversation has its slot.
        is_shown: the conversation keeps its lease, and its run shows that it waits. False: it is parked.
        changed: set when the slot is granted, and whenever the place in the queue may have changed.
    """

    conversation_id: str
    workspace: str
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

    A conversation whose person or channel is at its limit is skipped. A conversation that is *parked* gives its lease
    back and keeps its place in the queue; `wake` (see `watch`) is called when it is to be claimed again.
    """

    def __init__(self, limits: RunLimits | None = None, most_shown_per_person: int = _MOST_SHOWN_PER_PERSON) -> None:
        self._limits = limits or RunLimits()
        self._most_shown_per_person = most_shown_per_person
        self._by_conversation: dict[str, RunSlot] = {}
        # By person; the first person is the next one to be served.
        self._waiting: dict[str, list[RunSlot]] = {}
        self._shown: set[RunSlot] = set()
        self._running = 0
        self._running_of: Counter[str] = Counter()
        # By channel, and by workspace.
        self._running_in: Counter[str] = Counter()
        # By workspace.
        self._wakes: dict[str, Callable[[str], None]] = {}

    def configure(self, limits: RunLimits) -> None:
        """Replace the limits; runs that have a slot keep it."""
        self._limits = limits
        self._grant_next()

    def watch(self, workspace: str, wake: Callable[[str], None]) -> Callable[[], None]:
        """Call `wake(conversation_id)` for a parked conversation of a workspace that is to be claimed.

        Returns a function that ends it.
        """
        self._wakes[workspace] = wake
        return lambda: self._end(workspace)

    def _end(self, workspace: str) -> None:
        self._wakes.pop(workspace, None)
        for slot in [each for each in self._by_conversation.values() if each.workspace == workspace]:
            self.leave(slot.conversation_id)

    def _wake(self, slot: RunSlot) -> None:
        if (wake := self._wakes.get(slot.workspace)) is not None:
            wake(slot.conversation_id)

    def enter(self, conversation_id: str, message: SlackMessage, *, is_resumed: bool = False) -> RunSlot:
        """Return the slot of a conversation, or queue it if it has none for the author of this message."""
        person, channel = f"{message.team}:{message.user}", f"{message.team}:{message.channel}"
        slot = self._by_conversation.get(conversation_id)
        if slot is not None and slot.person != person and not slot.is_granted:
            self.leave(conversation_id)
            slot = None
        if slot is not None:
            return slot
        slot = RunSlot(conversation_id, message.team, person, channel, (not is_resumed, float(message.ts)))
        if self._has_room(slot):
            self._by_conversation[conversation_id] = slot
            slot.is_shown = True
            self._grant(slot)
        elif is_resumed or len(self._waiting.get(person, ())) < _MOST_SLOTS_PER_PERSON:
            self._by_conversation[conversation_id] = slot
            insort(self._waiting.setdefault(person, []), slot, key=lambda each: each.order)
            if is_resumed or self._may_show(person):
                self._show(slot)
        return slot

    def leave(self, conversation_id: str) -> None:
        """Release the slot or the place in the queue, if the conversation has one."""
        slot = self._by_conversation.pop(conversation_id, None)
        if slot is None:
            return
        if slot.is_granted:
            self._running -= 1
            self._running_of -= Counter((slot.person,))
            self._running_in -= Counter((slot.channel, slot.workspace))
        else:
            self._dequeue(slot)
        self._grant_next()

    def _grant_next(self) -> None:
        while (following := self._next()) is not None:
            self._dequeue(following)
            if (others := self._waiting.pop(following.person, None)) is not None:
                self._waiting[following.person] = others  # the person goes to the end
            self._grant(following)
        self._show_more()
        for each in self._shown:
            each.changed.set()

    def place(self, slot: RunSlot) -> int:
        """Return the position in the queue, if every waiting person is served in turn."""
        index = self._waiting[slot.person].index(slot)
        place = index + 1
        is_earlier = True
        for person, waiting in self._waiting.items():
            if person == slot.person:
                is_earlier = False
            else:
                place += min(len(waiting), index + is_earlier)
        return place

    def obstacle(self, slot: RunSlot) -> tuple[int, str]:
        """Return why a slot waits: the number of active runs, and the limit that they reach."""
        if (of_person := self._running_of[slot.person]) >= self._limits.runs_per_person:
            return of_person, "person"
        if (in_channel := self._running_in[slot.channel]) >= self._limits.runs_per_channel:
            return in_channel, "channel"
        most, in_workspace = self._limits.runs_per_workspace, self._running_in[slot.workspace]
        if most is not None and in_workspace >= most:
            return in_workspace, "workspace"
        return self._running, "process"

    @property
    def waiting(self) -> int:
        """The number of conversations that wait for a slot, parked ones included."""
        return len(self._by_conversation) - self._running

    @property
    def due_in_s(self) -> float:
        """For how long the store need not report a parked conversation."""
        shortest_s, longest_s = _DUE_IN_S
        return min(max(len(self._by_conversation) / _REPORTS_PER_S, shortest_s), longest_s)

    def _has_room(self, slot: RunSlot) -> bool:
        return (
            self._running < self._limits.runs
            and self._running_in[slot.channel] < self._limits.runs_per_channel
            and self._running_in[slot.workspace] < (self._limits.runs_per_workspace or self._limits.runs)
            and self._running_of[slot.person] < self._limits.runs_per_person
        )

    def _next(self) -> RunSlot | None:
        """Return the slot to grant next, if there is room for any."""
        if self._running >= self._limits.runs:
            return None
        found = None
        for person, waiting in self._waiting.items():
            if self._running_of[person] < self._limits.runs_per_person:
                slot = next(filter(self._has_room, waiting), None)
                if slot is not None and slot.is_resumed:
                    return slot
                found = found or slot
        return found

    def _grant(self, slot: RunSlot) -> None:
        self._running += 1
        self._running_of[slot.person] += 1
        self._running_in[slot.channel] += 1
        self._running_in[slot.workspace] += 1
        slot.is_granted = True
        slot.changed.set()
        if not slot.is_shown:
            slot.is_shown = True
            self._wake(slot)

    def _dequeue(self, slot: RunSlot) -> None:
        self._shown.discard(slot)
        waiting = self._waiting[slot.person]
        waiting.remove(slot)
        if not waiting:
            del self._waiting[slot.person]

    def _may_show(self, person: str) -> bool:
        of_person = sum(each.person == person for each in self._shown)
        return len(self._shown) < _MOST_SHOWN and of_person < self._most_shown_per_person

    def _show(self, slot: RunSlot) -> None:
        slot.is_shown = True
        self._shown.add(slot)

    def _show_more(self) -> None:
        """Wake parked conversations while more may be shown."""
        for person, waiting in self._waiting.items():
            for slot in waiting:
                if not self._may_show(person):
                    break
                if not slot.is_shown:
                    self._show(slot)
                    self._wake(slot)
