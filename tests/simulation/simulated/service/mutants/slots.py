"""Slots for runs, broken on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulated.service.slots import Slots

if TYPE_CHECKING:
    from connector.events import SlackMessage
    from connector.runs.run_slots import RunSlot


class GrantsToAll(Slots):
    """Has room for everybody."""

    def _has_room(self, slot: RunSlot) -> bool:
        return True


class IgnoresChannels(Slots):
    """Has no bound for a channel."""

    def _has_room(self, slot: RunSlot) -> bool:
        return self._running_of[slot.person] < self._limits.runs_per_person


class ForgetsThoseWhoWait(Slots):
    """Grants nothing when a slot is given back."""

    def _next(self) -> RunSlot | None:
        return None


class HoldsNobodyUp(Slots):
    """Says of everybody that they may begin, without a slot."""

    def enter(self, conversation_id: str, message: SlackMessage, *, is_resumed: bool = False) -> RunSlot:
        slot = super().enter(conversation_id, message, is_resumed=is_resumed)
        self.slots.pop(conversation_id, None)
        slot.is_granted = slot.is_shown = True
        return slot
