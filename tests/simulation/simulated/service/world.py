"""Conversations of the whole service: processes, their store, Slack, and people in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from connector.protocols import Participation
from connector.runs.background_tasks import BackgroundTasks
from connector.slack_api.client import SlackClient
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.heartbeats import Heartbeats
from service.runs import StoredRuns
from service.schedules.stored import StoredSchedules
from service.sessions.budgets import StoredBudgets
from service.sessions.workers import StoredWorkers
from simulated.engine import PROCESS
from simulated.simulation import Simulation, rng_for

from .agent import AGENTS, AgentState, Tool
from .faults import Faults, OtherWorkspace, place_of
from .files import Files
from .invariants import check_conversations
from .network import NetworkStores
from .notes import Reports
from .people import Events, People
from .replica import Sessions, Slots
from .run_table import RunTable
from .schedules import Scheduling
from .slack import Slack
from .store_observer import StoreObserver

# The kinds of faults, and the share of seeds that have each.
FEATURES = {
    "replicas": 0.5,
    "two conversations": 0.3,
    "two instances": 0.3,
    "kills": 0.6,
    "terminations": 0.3,
    "pauses": 0.25,
    "store outages": 0.25,
    "orphaned calls": 0.5,
    # A request arrives seconds after its sender gave it up, when others have overtaken it. No store can detect that
    # in time; this is for experiments.
    "late arrivals": 0.0,
    "slow store": 0.3,
    "flaky store": 0.4,
    "slow Slack": 0.4,
    "failing Slack": 0.4,
    "Slack outages": 0.2,
    "failing model": 0.2,
    "permanent model errors": 0.2,
    "short queue": 0.15,
    "long answers": 0.2,
    "doubled events": 0.4,
    "late events": 0.2,
    "urgent steers": 0.3,
    "impatient people": 0.3,
    "stops": 0.5,
    "edits": 0.4,
    "deletions": 0.4,
    "low rate limits": 0.2,
    "other workspace": 1 / 8,
    "few slots": 0.3,
    # Threads that begin without a mention; a later mention calls an agent into them.
    "existing threads": 0.25,
    # Slack refuses to return threads.
    "no look-ups": 0.2,
    "notes": 0.3,
    "reloads": 0.2,
    # Other settings of who may steer, and clicks on the questions to owners.
    "policies": 0.3,
    "mutes": 0.2,
    # Each direct message begins a thread, and needs no mention. All threads have an agent.
    "direct messages": 0.25,
    # Another bot, which is answered a few times before a person writes.
    "bots": 0.2,
    # Calls that people have to approve, questions of the agent, and clicks of anybody, often twice and too late.
    "approvals": 0.25,
    # Sub-agents in runs, and workers that outlive them.
    "workers": 0.25,
    # Messages of people that an agent gets later.
    "schedules": 0.25,
    # A budget that all agents share, with more room than they need.
    "budgets": 0.25,
    # Messages with files, which the service downloads.
    "files": 0.25,
    # Answers that people see while they are written.
    "streams": 0.25,
    # Files that an agent shares.
    "shares": 0.25,
    # Heartbeats between processes, which end the leases of a process without them.
    "heartbeats": 0.25,
}
# These have their own generator, so that the draws of the other features do not depend on them.
_DRAWN_SEPARATELY = (
    *("few slots", "existing threads", "no look-ups", "notes", "reloads", "policies", "mutes"),
    *("direct messages", "bots", "approvals", "workers", "schedules", "budgets", "files", "streams", "shares"),
    "heartbeats",
)
# How long everything may take to finish, in virtual seconds.
_REST_WITHIN_S = 900.0
_AFTER_REST_S = 20.0


def _draw_features(sim: Simulation) -> set[str]:
    separate = rng_for(sim.seed, "slots")
    found = {"other workspace"} if sim.seed % 8 == 6 else set()
    for name, share in FEATURES.items():
        if name != "other workspace":
            rng = separate if name in _DRAWN_SEPARATELY else sim.rng
            found |= {name} if rng.random() < share else set()
    return found


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts under test, and replaceable parts around them.

    Args:
        stores: creates the shared stores; `table` and `logs` are those of `NetworkStores`.
        acknowledges_early: processes acknowledge events before they store them.
        ignores_policy: everyone who takes part steers, whatever the settings say.
        features: faults that every seed has; `without`: faults that no seed has.
    """

    stores: Callable[[Simulation, Parts, StoreObserver], Any] = NetworkStores
    table: type[RunTable] = RunTable
    logs: type[MemoryStore] = MemoryStore
    client: type[SlackClient] = SlackClient
    tasks: type[BackgroundTasks] = BackgroundTasks
    sessions: type[Sessions] = Sessions
    runs: type[StoredRuns] = StoredRuns
    tool: type[Tool] = Tool
    slots: type[Slots] = Slots
    workers: type[StoredWorkers] = StoredWorkers
    schedules: type[StoredSchedules] = StoredSchedules
    budgets: type[StoredBudgets] = StoredBudgets
    heartbeats: type[Heartbeats] = Heartbeats
    acknowledges_early: bool = False
    ignores_policy: bool = False
    features: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()


class Environment:
    """What all processes share: Slack, the stores, the model and the tools."""

    def __init__(self, sim: Simulation, parts: Parts):
        self.sim = sim
        self.parts = parts
        policies = rng_for(sim.seed, "policies")
        self.participation = Participation(
            steerers=policies.choice(["owner", "participants", "anyone"]) if "policies" in sim.features else None,
            asks_consent="policies" in sim.features and policies.random() < 0.5,
        )
        approvals = rng_for(sim.seed, "approvals")
        self.approvals = {
            "unmarked": approvals.choice(["ask", "ask", "ask-two"]),
            "approvers": approvals.choice(["owner", "participants", "anyone"]),
            "deadline_s": approvals.choice([2.0, 10.0, 30.0]),
        }
        if "approvals" not in sim.features:
            self.approvals = None
        # In some seeds a schedule that is fired late was missed.
        self.schedule_grace_s = rng_for(sim.seed, "schedules").choice([2.0, 300.0])
        self.slack = Slack(sim, sim.rng.choice([2, 200]))
        self.files = Files(sim)
        self.observer = StoreObserver(sim)
        self.agents = AgentState(sim, self.observer, parts.tool)
        self.lease_s = sim.rng.choice([3.0, 6.0, 12.0])
        self.shutdown_grace_s = sim.rng.choice([3.0, 8.0])
        self.idle_evict_s = sim.rng.choice([0.5, 5.0, 900.0])
        self.stores = parts.stores(sim, parts, self.observer)


class World:
    """Plays conversations with faults, then waits in calm until everything is finished, and checks the outcome."""

    def __init__(self, sim: Simulation, parts: Parts):
        sim.features |= (_draw_features(sim) | parts.features) - parts.without
        if "direct messages" in sim.features:
            sim.features -= {"existing threads"}
        self._sim = sim
        self._environment = Environment(sim, parts)
        self._faults = Faults(self._environment)
        self._events = Events(sim, self._faults.connected)
        self._people = People(sim, self._environment.slack, self._events, self._environment.files)
        self._reports = Reports(sim, self._people, self._faults.connected)
        self._scheduling = Scheduling(sim, self._people, self._faults.connected)

        sim.places = self._places

    async def play(self) -> None:
        sim = self._sim
        AGENTS.set(self._environment.agents)
        self._faults.begin()
        if "other workspace" in sim.features:
            sim.spawn(OtherWorkspace(self._environment).live(), "the other workspace")
        count = 3 if "few slots" in sim.features else 2 if "two conversations" in sim.features else 1
        people = [sim.spawn(self._people.converse(), f"people {number}") for number in range(count)]
        if "notes" in sim.features:
            people.append(sim.spawn(self._reports.report(), "reports"))
        if "schedules" in sim.features:
            people.append(sim.spawn(self._scheduling.schedule(), "schedules"))
        await asyncio.wait(people)
        for each in people:
            each.result()
        await asyncio.sleep(sim.delay_s(0.5, 5))
        sim.calm = True
        sim.log("faults", "none from here on")
        self._faults.end()
        if await self._comes_to_rest():
            await asyncio.sleep(_AFTER_REST_S)
        else:
            sim.violation(f"After {_REST_WITHIN_S:.0f} s of calm: {await self._unfinished()}.")
        await check_conversations(self._environment, self._people, self._reports.notes, self._scheduling.made)

    def _places(self) -> list[str]:
        environment = self._environment
        return sorted([place_of(environment, state) for state in environment.observer.conversations.values()])

    def on_log(self, event: str, fields: str) -> None:
        self._sim.log(f"service {PROCESS.get()}", f"logs {event}{fields}")
        if event.endswith(".crashed"):
            self._sim.violation(f"The service logs {event}.")

    def close(self) -> None:
        self._environment.stores.close()

    async def _comes_to_rest(self) -> bool:
        until = self._sim.now() + _REST_WITHIN_S
        while self._sim.now() < until:
            await asyncio.sleep(1.0)
            if not await self._unfinished():
                return True
        return False

    async def _unfinished(self) -> str:
        """Describe what is not finished."""
        if not self._events.are_over:
            return "Slack is still sending events"
        if not all(each["over_s"] for each in (await self._environment.stores.documents("schedules:T1")).values()):
            return "a schedule is not over"
        for name, record in (await self._environment.stores.records()).items():
            if record.has_run or any(entry.seq > record.held_seq for entry in record.waiting):
                return f"{name} still has work"
            # A dead owner's lease has expired; without work no other process claims the conversation.
            if record.owner in [f"process {process.number}" for process in self._faults.processes]:
                return f"{name} still belongs to {record.owner}"
        for each in self._faults.processes:
            if each.slots.tickets:
                return f"process {each.number} keeps slots for {list(each.slots.tickets)}"
        return ""
