"""What happens to processes and to their store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from simulated.engine import standing

from .kill_points import stage
from .replica import Replica

if TYPE_CHECKING:
    from .environment import Ground

_STORE_TROUBLES = frozenset({"outages", "flaky store", "slow store"})


class Chaos:
    """Starts processes, ends them, kills them, holds them up; `calm` brings all back."""

    def __init__(self, ground: Ground) -> None:
        self.processes: list[Replica] = []
        self._ground = ground
        self._scene = ground.scene
        self._numbers = 0
        self._serving: dict[int, asyncio.Task[object]] = {}
        self._is_calm = False
        # Of all that they had to do for their end, time was over when they went on.
        self._held_at_their_end: set[int] = set()

    def connected(self) -> list[Replica]:
        return [process for process in self.processes if process.is_connected]

    def begin(self) -> None:
        """Start the first processes, and whatever is to happen to them."""
        scene = self._scene
        for _ in range(2 if "replicas" in scene.features else 1):
            self.start()
        troubles = {
            "kills": self._kill_some,
            "terms": self._terminate_some,
            "pauses": self._pause_some,
            "outages": self._be_away,
            "Slack away": self._be_without_slack,
            "no look-ups": self._be_told_of_no_threads,
        }
        for feature, trouble in troubles.items():
            if feature in scene.features:
                scene.spawn(trouble(), feature)

    def start(self) -> None:
        self._numbers += 1
        process = Replica(self._numbers, self._ground)
        self.processes.append(process)
        self._serving[process.number] = serving = process.start()
        serving.add_done_callback(lambda _: self._ended(process))

    def calm(self) -> None:
        """From here on nothing happens any more; what is to be started again still is."""
        self._is_calm = True
        self._ground.slack.is_away = False
        self._ground.slack.tells_of_threads = True
        self._ground.stores.come_back()
        for process in self.processes:
            self._scene.loop.let_go(process.number)

    def kill(self, process: Replica) -> None:
        if process not in self.processes:
            return
        scene = self._scene
        scene.tell("chaos", f"kills process {process.number}")
        scene.count(f"kill {stage(self._ground, process.number)}")
        process.is_connected = False
        self.processes.remove(process)
        self._bury(process)

    def _ended(self, process: Replica) -> None:
        if process not in self.processes:
            return
        self.processes.remove(process)
        serving = self._serving[process.number]
        if not serving.cancelled() and (error := serving.exception()) is not None:
            self._scene.blame(f"Process {process.number} ended: {error!r}.")
        mine = [task for task in self._scene.loop.pending() if self._scene.loop.life_of(task) == process.number]
        left = [task for task in mine if not self._scene.is_ours(task)]
        # What hangs in a store that is away is cut with the process; so is all when it has no time left.
        has_time = process.number not in self._held_at_their_end
        if left and has_time and _STORE_TROUBLES.isdisjoint(self._scene.features):
            self._scene.blame(f"Process {process.number} ended, and left this behind: {standing(left[0])}.")
        self._scene.count("process ended")
        self._bury(process)

    def _bury(self, process: Replica) -> None:
        self._scene.loop.kill(process.number)
        self._ground.stores.dead(process.number)
        self._scene.spawn(self._start_later(), "a restart")

    async def _start_later(self) -> None:
        await asyncio.sleep(0.3 + self._scene.some_s(0.5, 3))
        self._scene.count("restart")
        self.start()

    async def _kill_some(self) -> None:
        scene = self._scene
        for _ in range(scene.chance.choice([1, 1, 2, 3])):
            process = await self._some_process()
            if process is None:
                return
            count = scene.chance.randint(1, scene.chance.choice([30, 100, 300]))
            scene.loop.after_callbacks(process.number, count, partial(self._kill_unless_calm, process))
            await asyncio.sleep(scene.some_s(3, 8))

    async def _some_process(self) -> Replica | None:
        """Sooner or later one that is there; rather one that owns a conversation. `None`: all is calm."""
        scene = self._scene
        await asyncio.sleep(scene.some_s(0.1, 3))
        is_choosy = scene.chance.random() < 0.8
        while not scene.calm:
            owners = {standing.owner for standing in self._ground.witness.standing.values()}
            found = [process for process in self.processes if not is_choosy or process.number in owners]
            if found:
                return scene.chance.choice(found)
            await asyncio.sleep(0.1)
        return None

    def _kill_unless_calm(self, process: Replica) -> None:
        if not self._is_calm:
            self.kill(process)

    async def _terminate_some(self) -> None:
        scene = self._scene
        for _ in range(scene.chance.choice([1, 1, 2])):
            process = await self._some_process()
            if process is None:
                return
            count = scene.chance.randint(1, scene.chance.choice([30, 100, 300]))
            scene.loop.after_callbacks(process.number, count, partial(self._terminate, process))
            await asyncio.sleep(scene.some_s(2, 6))

    def _terminate(self, process: Replica) -> None:
        scene = self._scene
        if self._is_calm or process not in self.connected():
            return
        scene.tell("chaos", f"ends process {process.number}")
        scene.count(f"term {stage(self._ground, process.number)}")
        process.terminate()

    async def _pause_some(self) -> None:
        scene = self._scene
        process = await self._some_process()
        if process is None:
            return
        seconds = self._ground.lease_s * scene.chance.uniform(0.2, 2)
        count = scene.chance.randint(1, 300)
        scene.loop.after_callbacks(process.number, count, lambda: self._pause(process, seconds))

    def _pause(self, process: Replica, seconds: float) -> None:
        if self._is_calm:
            return
        scene = self._scene
        scene.tell("chaos", f"holds process {process.number} for {seconds:.1f} s")
        scene.count(f"pause {stage(self._ground, process.number)}")
        scene.loop.hold(process.number)
        if process.is_ending:
            self._held_at_their_end.add(process.number)
        scene.loop.call_later(seconds, self._let_go, process)

    def _let_go(self, process: Replica) -> None:
        self._scene.tell("chaos", f"lets process {process.number} go")
        self._scene.loop.let_go(process.number)

    async def _be_away(self) -> None:
        scene = self._scene
        for _ in range(scene.chance.choice([1, 1, 2])):
            await asyncio.sleep(scene.some_s(1, 5))
            if scene.calm:
                return
            scene.tell("chaos", "the store is away")
            scene.count("outage")
            self._ground.stores.go_away()
            await asyncio.sleep(scene.chance.uniform(0.1, scene.chance.choice([1, 10])))
            self._ground.stores.come_back()
            scene.tell("chaos", "the store is back")

    async def _be_without_slack(self) -> None:
        scene, slack = self._scene, self._ground.slack
        await asyncio.sleep(scene.some_s(1, 5))
        if scene.calm:
            return
        scene.tell("chaos", "Slack is away")
        scene.count("Slack away")
        slack.is_away = True
        await asyncio.sleep(scene.chance.uniform(0.1, scene.chance.choice([5, 20, 60])))
        slack.is_away = False
        scene.tell("chaos", "Slack is back")

    async def _be_told_of_no_threads(self) -> None:
        scene = self._scene
        await asyncio.sleep(scene.chance.choice([0, scene.some_s(1, 5)]))
        if not scene.calm:
            scene.tell("chaos", "Slack returns no threads")
            scene.count("no look-ups")
            self._ground.slack.tells_of_threads = False
