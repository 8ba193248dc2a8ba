"""Schedules that people make in threads, and requests for them that are repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator_interactive.storage.errors import StoreError
from simulated.simulation import Simulation

from .people import People
from .replica import Replica
from .slack import EPOCH_S


@dataclass(slots=True)
class MadeSchedule:
    """A schedule for one moment, `due_s` in simulated seconds. `id`: once a call that stores it has returned."""

    call: str
    conversation: str
    user: str
    due_s: float
    text: str
    id: str = ""
    is_removed: bool = False


class Scheduling:
    """Makes schedules at any time, repeats a request whose outcome is unknown, and removes some schedules."""

    def __init__(self, sim: Simulation, people: People, listeners: Callable[[], Sequence[Replica]]):
        self.made: list[MadeSchedule] = []
        self._sim = sim
        self._people = people
        self._listeners = listeners

    async def schedule(self) -> None:
        """Make a few schedules, in threads that have an agent."""
        sim = self._sim
        for number in range(sim.rng.choice([1, 2, 3])):
            await asyncio.sleep(sim.delay_s(0.2, 1, 3))
            if mentions := [each for each in self._people.written if each.is_mention and each.is_acked]:
                written = sim.rng.choice(mentions)
                due_s = float(int(sim.now() + EPOCH_S + sim.rng.choice([2, 4, 8, 20])))
                user = written.message.user
                made = MadeSchedule(f"call {number}", written.conversation, user, due_s - EPOCH_S, f"later{number}")
                self.made.append(made)
                await self._until_done(lambda replica, made=made: self._add(replica, made))
                if made.id and sim.rng.random() < 0.15:
                    await self._until_done(lambda replica, made=made: self._remove(replica, made))

    async def _until_done(self, attempt) -> None:
        for _ in range(5):
            if listeners := self._listeners():
                listener = self._sim.rng.choice(listeners)
                trying = self._sim.spawn(self._attempt(attempt, listener), "a schedule", listener.number)
                await asyncio.wait([trying], timeout=10)
                if trying.done() and not trying.cancelled() and trying.result() and self._sim.rng.random() < 0.8:
                    return
            await asyncio.sleep(self._sim.delay_s(0.5, 3))

    async def _attempt(self, attempt, listener: Replica) -> bool:
        """Return whether the store has accepted it."""
        try:
            await attempt(listener)
        except StoreError as error:
            self._sim.log("code", f"gets {error!r}")
            return False
        except ValueError:  # a request that was repeated too late
            return True
        return True

    async def _add(self, listener: Replica, made: MadeSchedule) -> None:
        assert listener.schedules is not None
        when = datetime.fromtimestamp(made.due_s + EPOCH_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        request = f"{when} {made.text}"
        added = await listener.schedules.add(made.conversation, made.user, "alpha", request, made.call, zone="UTC")
        self._sim.count("schedule repeated" if made.id else "schedule made")
        made.id = added.id

    async def _remove(self, listener: Replica, made: MadeSchedule) -> None:
        assert listener.schedules is not None
        made.is_removed = True  # perhaps after it has fired
        if await listener.schedules.revoke("T1", made.user, made.id):
            self._sim.count("schedule removed")
