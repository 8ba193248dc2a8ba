"""The whole service: processes, their store, Slack, and people in threads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simulated.scenario import chance_of

from . import features
from .agent import CAST
from .chaos import Chaos
from .environment import Ground
from .events import Events
from .invariants import judge
from .other_workspace import Neighbour
from .people import Crowd

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .parts import Parts

_LOOK_EVERY_S = 1.0
# How long everything may take to come to rest, in virtual seconds.
_PATIENCE_S = 900.0
# What follows the end of the last run.
_AFTERWARDS_S = 20.0


class World:
    """Plays some conversations on the scene, and judges them."""

    def __init__(self, scene: Scenario, parts: Parts) -> None:
        scene.features |= (
            features.drawn(scene.chance, chance_of(scene.seed, "slots"), scene.seed) | parts.features
        ) - parts.without
        self._scene = scene
        self._ground = Ground(scene, parts)
        self._chaos = Chaos(self._ground)
        self._events = Events(scene, self._chaos.connected)
        self._crowd = Crowd(scene, self._ground.slack, self._events)

    async def play(self) -> None:
        scene = self._scene
        CAST.set(self._ground.cast)
        self._chaos.begin()
        if "other workspace" in scene.features:
            scene.spawn(Neighbour(self._ground).live(), "the neighbour")
        count = 3 if "few slots" in scene.features else 2 if "two conversations" in scene.features else 1
        people = [scene.spawn(self._crowd.converse(), f"people {number}") for number in range(count)]
        await asyncio.wait(people)
        for each in people:
            each.result()
        await asyncio.sleep(scene.some_s(0.5, 5))
        scene.calm = True
        scene.tell("chaos", "calm")
        self._chaos.calm()
        if await self._comes_to_rest():
            await asyncio.sleep(_AFTERWARDS_S)
        else:
            scene.blame(f"After {_PATIENCE_S:.0f} s of calm: {await self._unrest()}.")
        await judge(scene, self._ground, self._crowd)

    def close(self) -> None:
        """Leave nothing behind."""
        self._ground.stores.close()

    async def _comes_to_rest(self) -> bool:
        until = self._scene.now() + _PATIENCE_S
        while self._scene.now() < until:
            await asyncio.sleep(_LOOK_EVERY_S)
            if not await self._unrest():
                return True
        return False

    async def _unrest(self) -> str:
        """What is still going on."""
        if not self._events.are_over:
            return "Slack is still telling of events"
        for name, known in (await self._ground.stores.known()).items():
            if known.has_run or any(entry.seq > known.held_seq for entry in known.waiting):
                return f"{name} still has something to do"
            # The lease of one that is dead has run out: where there is nothing to do, nobody asks for it.
            if known.owner in [f"process {process.number}" for process in self._chaos.processes]:
                return f"{name} still belongs to {known.owner}"
        return next(
            (
                f"process {each.number} keeps slots for {list(each.slots.tickets)}"
                for each in self._chaos.processes
                if each.slots.tickets
            ),
            "",
        )
