"""Faults of processes, stores and Slack, and a service of another workspace over the same store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from connector.protocols import InboxEntry, LeaseLost, StateChanges
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.runs import StoredRuns
from simulated.engine import stack_of

from .replica import Replica
from .store_observer import OTHER_PROCESSES, OTHER_TEAM, ConversationState

_STORE_FAULTS = frozenset({"store outages", "flaky store", "slow store"})
# Where a process can be when it is killed, terminated or paused.
STAGES = (
    "before a post is made",
    "after a post is made, before it is stored",
    "in a tool",
    "during a model call",
    "before the prompt is in the log",
    "after the last post",
    "between steps of a run",
    "between runs",
    "without conversations",
)


def stage_of(environment: Any, process: int) -> str:
    """Return the first of the stages at which the conversations of a process are."""
    states = environment.observer.conversations.values()
    owned = [_stage(environment, process, state) for state in states if state.owner == process]
    return min(owned, key=STAGES.index, default=STAGES[-1])


def _stage(environment: Any, process: int, state: ConversationState) -> str:
    if state.run is None:
        return "between runs"
    if pending := [part for part, is_pending in state.posts.items() if is_pending]:
        keys = {message.key for message in environment.slack.messages.values()}
        are_made = all(f"{state.run}:{part}:0" in keys for part in pending)
        return "after a post is made, before it is stored" if are_made else "before a post is made"
    if environment.agents.active[process, "tool"]:
        return "in a tool"
    if environment.agents.active[process, "model"]:
        return "during a model call"
    if state.first not in environment.observer.delivered:
        return "before the prompt is in the log"
    return "after the last post" if state.posts else "between steps of a run"


def place_of(environment: Any, state: ConversationState) -> str:
    """Describe where a conversation is, in words that decide what may happen next."""
    stage = "without owner" if state.owner is None else _stage(environment, state.owner, state)
    marks = {"messages wait": state.waiting, "stopped": state.stops, "held": state.held}
    return ", ".join([stage, *(mark for mark, is_on in marks.items() if is_on)])


class Faults:
    """Starts, kills, terminates and pauses processes, and takes stores and Slack away; `end` repairs everything."""

    def __init__(self, environment: Any):
        self.processes: list[Replica] = []
        self._environment = environment
        self._sim = environment.sim
        self._count = 0
        self._serving: dict[int, asyncio.Task[object]] = {}
        self._is_over = False
        # Processes that were paused during their end: the time of their clean-up was over when they resumed.
        self._paused_at_end: set[int] = set()

    def connected(self) -> list[Replica]:
        return [process for process in self.processes if process.is_connected]

    def begin(self) -> None:
        """Start the first processes and the faults of this seed."""
        sim = self._sim
        for _ in range(2 if "replicas" in sim.features else 1):
            self.start()
        faults = {
            "kills": lambda: self._repeat([1, 1, 2, 3], self._kill, (3, 8)),
            "terminations": lambda: self._repeat([1, 1, 2], self._terminate, (2, 6)),
            "pauses": self._pause_one,
            "reloads": lambda: self._repeat([1, 2, 3], self._reload, (1, 4)),
            "store outages": self._store_outages,
            "Slack outages": lambda: self._outage("Slack", self._environment.slack, [5, 20, 60]),
            "no look-ups": self._no_threads,
        }
        for feature, fault in faults.items():
            if feature in sim.features:
                sim.spawn(fault(), feature)

    def start(self) -> None:
        self._count += 1
        process = Replica(self._count, self._environment)
        self.processes.append(process)
        self._serving[process.number] = serving = process.start()
        serving.add_done_callback(lambda _: self._ended(process))

    def end(self) -> None:
        """Stop all faults. Processes that are to be started again still are."""
        self._is_over = True
        self._environment.slack.come_back()
        self._environment.slack.returns_threads = True
        self._environment.stores.come_back()
        for process in self.processes:
            self._sim.loop.resume(process.number)

    def _ended(self, process: Replica) -> None:
        if process not in self.processes:
            return
        sim = self._sim
        self.processes.remove(process)
        serving = self._serving[process.number]
        if not serving.cancelled() and (error := serving.exception()) is not None:
            sim.violation(f"Process {process.number} ended: {error!r}.")
        tasks = [task for task in sim.loop.pending() if sim.loop.process_of(task) == process.number]
        left = [task for task in tasks if not sim.is_actor(task)]
        # A request to a store that is away is cut with the process, and everything if the process has no time left.
        has_time = process.number not in self._paused_at_end
        if left and has_time and _STORE_FAULTS.isdisjoint(sim.features):
            sim.violation(f"Process {process.number} ended, and left this task: {stack_of(left[0])}.")
        sim.count("process ended")
        self._restart(process)

    def _restart(self, process: Replica) -> None:
        self._sim.loop.kill(process.number)
        self._environment.stores.disconnect(process.number)

        async def start_later() -> None:
            await asyncio.sleep(0.3 + self._sim.delay_s(0.5, 3))
            self._sim.count("restart")
            self.start()

        self._sim.spawn(start_later(), "a restart")

    async def _repeat(self, counts: list[int], fault: Callable[[Replica], None], means_s: tuple[int, int]) -> None:
        """Let a fault happen to some processes, each after a random number of callbacks."""
        rng = self._sim.rng
        for _ in range(rng.choice(counts)):
            process = await self._some_process()
            if process is None:
                return
            count = rng.randint(1, rng.choice([30, 100, 300]))
            self._sim.loop.after_callbacks(process.number, count, partial(fault, process))
            await asyncio.sleep(self._sim.delay_s(*means_s))

    async def _some_process(self) -> Replica | None:
        """Wait for a process, in most cases one that owns a conversation. Returns None in calm."""
        sim = self._sim
        await asyncio.sleep(sim.delay_s(0.1, 3))
        must_own = sim.rng.random() < 0.8
        while not sim.calm:
            owners = {state.owner for state in self._environment.observer.conversations.values()}
            found = [process for process in self.processes if not must_own or process.number in owners]
            if found:
                return sim.rng.choice(found)
            await asyncio.sleep(0.1)
        return None

    def _happens(self, fault: str, process: Replica) -> None:
        self._sim.log("faults", f"{fault} of process {process.number}")
        self._sim.count(f"{fault} {stage_of(self._environment, process.number)}")

    def _kill(self, process: Replica) -> None:
        if self._is_over or process not in self.processes:
            return
        self._happens("kill", process)
        process.is_connected = False
        self.processes.remove(process)
        self._restart(process)

    def _terminate(self, process: Replica) -> None:
        if not self._is_over and process in self.connected():
            self._happens("termination", process)
            process.terminate()

    def _reload(self, process: Replica) -> None:
        if not self._is_over and process in self.connected():
            self._happens("reload", process)
            process.reload()

    async def _pause_one(self) -> None:
        if (process := await self._some_process()) is not None:
            seconds = self._environment.lease_s * self._sim.rng.uniform(0.2, 2)
            pause = partial(self._pause, process, seconds)
            self._sim.loop.after_callbacks(process.number, self._sim.rng.randint(1, 300), pause)

    def _pause(self, process: Replica, seconds: float) -> None:
        if self._is_over:
            return
        self._happens("pause", process)
        self._sim.loop.pause(process.number)
        if process.is_ending:
            self._paused_at_end.add(process.number)
        self._sim.loop.call_later(seconds, self._resume, process)

    def _resume(self, process: Replica) -> None:
        self._sim.log("faults", f"process {process.number} resumes")
        self._sim.loop.resume(process.number)

    async def _store_outages(self) -> None:
        for _ in range(self._sim.rng.choice([1, 1, 2])):
            await self._outage("store", self._environment.stores, [1, 10])

    async def _outage(self, name: str, server: Any, longest_s: list[int]) -> None:
        sim = self._sim
        await asyncio.sleep(sim.delay_s(1, 5))
        if sim.calm:
            return
        sim.log("faults", f"{name}: away")
        sim.count(f"{name} outage")
        server.go_away()
        await asyncio.sleep(sim.rng.uniform(0.1, sim.rng.choice(longest_s)))
        server.come_back()
        sim.log("faults", f"{name}: back")

    async def _no_threads(self) -> None:
        sim = self._sim
        await asyncio.sleep(sim.rng.choice([0, sim.delay_s(1, 5)]))
        if not sim.calm:
            sim.log("faults", "Slack returns no threads")
            sim.count("no look-ups")
            self._environment.slack.returns_threads = False


class OtherWorkspace:
    """A service of another workspace: it is killed during its runs, and returns after their leases have expired."""

    def __init__(self, environment: Any):
        self._environment = environment
        self._owned: set[str] = set()

    async def live(self) -> None:
        sim = self._environment.sim
        sim.spawn(self._serve(OTHER_PROCESSES), "other workspace", OTHER_PROCESSES)
        await asyncio.sleep(sim.delay_s(1, 4))
        sim.loop.kill(OTHER_PROCESSES)
        self._environment.stores.disconnect(OTHER_PROCESSES)
        self._owned.clear()
        await asyncio.sleep(self._environment.lease_s + sim.delay_s(1, 10))
        sim.spawn(self._serve(OTHER_PROCESSES + 1), "other workspace", OTHER_PROCESSES + 1)

    async def _serve(self, process: int) -> None:
        environment = self._environment
        store, _ = await environment.stores.connect(process)
        async with StoredRuns(store, f"process {process}", environment.lease_s, StoreRetryPolicy()) as runs:

            def work(conversation_id: str) -> None:
                environment.sim.spawn(self._work(process, runs, conversation_id), conversation_id, process)

            runs.watch(OTHER_TEAM, work)
            for number in range(3):
                entry = InboxEntry(f"{OTHER_TEAM}:C1:{number}.0", "message", {})
                await runs.admit(entry.id, entry, "alpha")
            await asyncio.Event().wait()

    async def _work(self, process: int, runs: StoredRuns, conversation_id: str) -> None:
        """Begin a run and never end it, or end the run of the previous process."""
        if conversation_id in self._owned:
            return
        self._owned.add(conversation_id)
        with suppress(LeaseLost):
            lease = await runs.claim(conversation_id)
            if lease is None:
                self._owned.discard(conversation_id)
            elif process == OTHER_PROCESSES:
                await lease.write(StateChanges(run={"id": conversation_id}))
            else:
                outcome = "waited" if lease.claim.run else "never begun"
                self._environment.sim.count(f"run of another workspace {outcome}")
                closed = {entry.seq: "done" for entry in lease.claim.entries}
                await lease.write(StateChanges(run={}, closed=closed))
                await lease.release(max(closed, default=0))
