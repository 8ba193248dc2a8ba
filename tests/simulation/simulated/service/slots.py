"""The slots of a process, whose invariants are checked after every step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from connector.runs.run_slots import RunLimits, RunSlot, RunSlots

if TYPE_CHECKING:
    from connector.events import SlackMessage
    from simulated.scenario import Scenario


class Slots(RunSlots):
    """Blames more runs than the limits allow, and a run that waits though there is room for it."""

    def __init__(self, scene: Scenario, limits: RunLimits, most_shown_per_person: int) -> None:
        super().__init__(limits, most_shown_per_person)
        self.slots: dict[str, RunSlot] = {}
        self._scene = scene

    def enter(self, conversation_id: str, message: SlackMessage, *, is_resumed: bool = False) -> RunSlot:
        is_new = conversation_id not in self.slots
        slot = self.slots[conversation_id] = super().enter(conversation_id, message, is_resumed=is_resumed)
        if is_new and not slot.is_granted:
            self._scene.count(f"run waits for a slot, {'shown' if slot.is_shown else 'parked'}")
        self._check()
        return slot

    def leave(self, conversation_id: str) -> None:
        super().leave(conversation_id)
        self.slots.pop(conversation_id, None)
        self._check()

    def is_granted(self, conversation_id: str) -> bool:
        return conversation_id in self.slots and self.slots[conversation_id].is_granted

    def _check(self) -> None:
        most = self._limits
        granted = [slot for slot in self.slots.values() if slot.is_granted]
        people, channels = Counter(each.person for each in granted), Counter(each.channel for each in granted)
        if (
            len(granted) > most.runs
            or max(people.values(), default=0) > most.runs_per_person
            or max(channels.values(), default=0) > most.runs_per_channel
        ):
            self._scene.blame(f"{len(granted)} runs have a slot, which are too many.")
        for slot in self.slots.values():
            is_bound = (
                len(granted) >= most.runs
                or people[slot.person] >= most.runs_per_person
                or channels[slot.channel] >= most.runs_per_channel
            )
            if not slot.is_granted and not is_bound:
                self._scene.blame(f"{slot.conversation_id} waits for a slot, and there is one.")
