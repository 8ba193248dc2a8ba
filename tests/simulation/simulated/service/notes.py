"""Code in the processes of the service that reports events to conversations as notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator_interactive.storage.errors import StoreError
from simulated.simulation import Simulation

from .people import People
from .replica import Replica


@dataclass(slots=True)
class ReportedNote:
    """A note. `is_stored`: a call that stores it has returned."""

    id: str
    conversation: str
    instance: str
    is_stored: bool = False

    @property
    def entry_id(self) -> str:
        return f"note:{self.instance}:{self.id}"

    @property
    def text(self) -> str:
        return f"event {self.id}"


class Reports:
    """Reports events to threads at any time, and repeats a call whose outcome is unknown."""

    def __init__(self, sim: Simulation, people: People, listeners: Callable[[], Sequence[Replica]]):
        self.notes: list[ReportedNote] = []
        self._sim = sim
        self._people = people
        self._listeners = listeners

    async def report(self) -> None:
        """Report a few events, to a thread that has an agent or not yet."""
        sim = self._sim
        for number in range(sim.rng.choice([1, 2, 4])):
            await asyncio.sleep(sim.delay_s(0.2, 1, 4))
            if self._people.written:
                conversation = sim.rng.choice(self._people.written).conversation
                instance = sim.rng.choice(["alpha", "alpha", "beta"])
                note = ReportedNote(f"n{number}", conversation, instance)
                self.notes.append(note)
                await self._store(note)

    async def _store(self, note: ReportedNote) -> None:
        sim = self._sim
        for _ in range(5):
            if listeners := self._listeners():
                listener = sim.rng.choice(listeners)
                sim.log("code", f"in process {listener.number} reports {note.text!r} to {note.instance}")
                storing = sim.spawn(self._attempt(listener, note), "a note", listener.number)
                await asyncio.wait([storing], timeout=10)
                if storing.done() and not storing.cancelled() and storing.result():
                    sim.count("note repeated" if note.is_stored else "note stored")
                    note.is_stored = True
                    if sim.rng.random() < 0.8:
                        return
            await asyncio.sleep(sim.delay_s(0.5, 3))

    async def _attempt(self, listener: Replica, note: ReportedNote) -> bool:
        """Return whether the note is stored."""
        assert listener.notes is not None
        try:
            await listener.notes.store(note.instance, note.conversation, note.text, note.id)
        except StoreError as error:
            self._sim.log("code", f"gets {error!r}")
            return False
        return True
