"""One process of the service. Slack, the stores, and the model and tools are simulated; everything else is real."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from connector.conversations.worker_pool import WorkerPool
from connector.events import SlackMessage
from connector.inbound.admission import Admitter
from connector.inbound.dispatcher import dispatch
from connector.inbound.intake import Intake
from connector.inbound.unattended import Unattended
from connector.protocols import BotRules, ChannelRules, Instance, MessageFile, Participation, Persona
from connector.routing import Router
from connector.runs.run_slots import RunLimits, RunSlot, RunSlots
from connector.runs.workspace import WorkspaceContext
from connector.slack_api.rate_limiter import RateLimiter
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.config import AgentConfig, InstanceConfig, ModuleConfig, PersonaConfig
from service.notes import Notes
from service.schedules.scheduler import firing_schedules
from service.schedules.stored import StoredSchedules
from service.sessions.host import LocalHost
from service.sessions.manager import InProcessSessionManager
from service.sessions.people import AlwaysRules
from simulated.engine import PROCESS
from simulated.simulation import Simulation

from .agent import AGENTS
from .slack import BOT, BOT_IDS, EPOCH_S, OTHER_BOT, TEAM, WebClient

_AGENT = ModuleConfig(module="staged", source=str(Path(__file__).parent / "agent_module.py"))
_LIMIT = {"per": "workspace", "period": "month", "tokens": 10**9}
_BUDGET = ModuleConfig(module="hooks-budget", config={"limits": [_LIMIT], "output_tokens": 10})
_INSTANCES = [Instance(name, Persona(name.title(), ":owl:")) for name in ("alpha", "beta")]
_NO_CHANNELS: dict[str, ChannelRules] = {}
_BOTS = BotRules(frozenset({BOT_IDS[OTHER_BOT]}), 2)
# The share of Slack's rate limits with which calls have to wait for each other.
_LOW_RATE_LIMITS = 0.4


def _config(
    approvals: Mapping[str, Any] | None,
    instructions: str = "You help.",
    *,
    delegates: bool = False,
    has_budget: bool = False,
    **options: int,
) -> dict[str, InstanceConfig]:
    """Return the instances. `approvals` are the options of `hooks-approval`; `None`: no one is asked.

    `delegates`: they have a sub-agent, and dispatch workers.
    """
    hooks = () if approvals is None else (ModuleConfig(module="hooks-approval", config=dict(approvals)),)
    hooks += (_BUDGET,) if has_budget else ()
    tools = () if approvals is None else (ModuleConfig(module="tool-ask-user", config={"deadline_s": 20.0}),)
    agents = {}
    if delegates:
        tools += (ModuleConfig(module="tool-delegate"), ModuleConfig(module="tool-dispatch-worker"))
        agents["helper"] = AgentConfig(description="Helps.", instructions="You help with a part.")
    loop = ModuleConfig(module="loop-interactive", config=options)
    return {
        each.name: InstanceConfig(
            persona=PersonaConfig(name=each.persona.name, emoji=each.persona.emoji),
            instructions=instructions,
            providers=(_AGENT,),
            tools=tools,
            hooks=hooks,
            agents=agents,
            orchestrator=loop,
        )
        for each in _INSTANCES
    }


class _Workspaces:
    """Workspace folders that no tool uses."""

    limits: ClassVar[dict[str, int]] = {}
    template: ClassVar[Path | None] = None

    async def check(self) -> None:
        """Accept them."""

    def folder(self, conversation_id: str) -> Path:
        return Path("/nowhere") / conversation_id

    async def prepare(self, conversation_id: str) -> None:
        """Create nothing."""


class Slots(RunSlots):
    """Run slots that check their limits after every step, and that no run waits for a free slot."""

    def __init__(self, sim: Simulation, limits: RunLimits, most_shown_per_person: int):
        super().__init__(limits, most_shown_per_person)
        self.tickets: dict[str, RunSlot] = {}
        self._sim = sim

    def enter(self, conversation_id: str, message: SlackMessage, *, is_resumed: bool = False) -> RunSlot:
        is_new = conversation_id not in self.tickets
        ticket = self.tickets[conversation_id] = super().enter(conversation_id, message, is_resumed=is_resumed)
        if is_new and not ticket.is_granted:
            self._sim.count(f"run waits for a slot, {'shown' if ticket.is_shown else 'parked'}")
        self._check()
        return ticket

    def leave(self, conversation_id: str) -> None:
        super().leave(conversation_id)
        self.tickets.pop(conversation_id, None)
        self._check()

    def is_granted(self, conversation_id: str) -> bool:
        return conversation_id in self.tickets and self.tickets[conversation_id].is_granted

    def _check(self) -> None:
        limits, granted = self._limits, [ticket for ticket in self.tickets.values() if ticket.is_granted]
        people, channels = Counter(each.person for each in granted), Counter(each.channel for each in granted)
        most_of_a_person, most_of_a_channel = max(people.values(), default=0), max(channels.values(), default=0)
        is_over = len(granted) > limits.runs or most_of_a_person > limits.runs_per_person
        if is_over or most_of_a_channel > limits.runs_per_channel:
            self._sim.violation(f"{len(granted)} runs have a slot, which exceeds the limits.")
        for ticket in self.tickets.values():
            is_bound = (
                len(granted) >= limits.runs
                or people[ticket.person] >= limits.runs_per_person
                or channels[ticket.channel] >= limits.runs_per_channel
            )
            if not ticket.is_granted and not is_bound:
                self._sim.violation(f"{ticket.conversation_id} waits for a slot, and one is free.")


class Sessions(InProcessSessionManager):
    """Sessions in which each run must have a slot."""

    def watch(self, sim: Simulation, slots: Slots, stored: set[tuple[str, str]]) -> None:
        self._sim, self._slots, self._stored = sim, slots, stored

    async def execute(self, instance_name: str, conversation_id: str, *given: Any, **more: Any) -> str:
        if not self._slots.is_granted(conversation_id):
            self._sim.violation(f"A run began in {conversation_id} without a slot.")
        return await super().execute(instance_name, conversation_id, *given, **more)

    async def keep_file(self, _instance: str, conversation_id: str, file_id: str, name: str, *_: Any) -> MessageFile:
        await asyncio.sleep(self._sim.delay_s(0.01, 0.2))
        self._stored.add((conversation_id, file_id))
        return MessageFile(name, f"{name}: stored as {file_id}")

    async def drop_files(self, _instance: str, conversation_id: str, file_ids: Collection[str]) -> None:
        await asyncio.sleep(self._sim.delay_s(0.01))
        self._stored.difference_update((conversation_id, each) for each in file_ids)


class Replica:
    """A process from its start to its end. `environment` is an `Environment`, which all processes share."""

    def __init__(self, number: int, environment: Any):
        sim = environment.sim
        self.number = number
        self.is_connected = False
        self.intake: Intake | None = None
        self.notes: Notes | None = None
        self.schedules: StoredSchedules | None = None
        # Takes over another configuration; the instructions change, so that each session becomes outdated.
        self.reload: Callable[[], object] = lambda: None
        is_tight = "few slots" in sim.features
        self._limits = RunLimits(runs_per_person=1, runs_per_channel=2) if is_tight else RunLimits()
        self.slots = environment.parts.slots(sim, self._limits, sim.seed % 2 if is_tight else 5)
        self._environment = environment
        self._ended = asyncio.Event()

    def start(self) -> asyncio.Task[Any]:
        context = contextvars.copy_context()
        context.run(PROCESS.set, self.number)
        context.run(AGENTS.set, self._environment.agents)
        sim = self._environment.sim
        sim.log("faults", f"process {self.number} starts")
        return sim.loop.create_task(self._serve(), name=f"process {self.number}", context=context)

    @property
    def is_ending(self) -> bool:
        return self._ended.is_set()

    def terminate(self) -> None:
        """End as after SIGTERM."""
        self._ended.set()

    async def receive(self, event: dict[str, Any]) -> None:
        """Handle an event. Its return is the acknowledgement."""
        assert self.intake is not None
        handling = dispatch(event, TEAM, self.intake)
        if self._environment.parts.acknowledges_early:
            self._environment.sim.spawn(handling, "an acknowledged event", self.number)
        else:
            await handling

    async def _serve(self) -> None:
        environment, parts, sim = self._environment, self._environment.parts, self._environment.sim
        run_store, log_store = await environment.stores.connect(self.number)
        policy = StoreRetryPolicy()
        documents = retrying(run_store, policy)
        scale = _LOW_RATE_LIMITS if sim.occurs("low rate limits", 1) else 1.0
        web: Any = WebClient(sim, environment.slack, self.number, environment.files)
        workspaces: Any = _Workspaces()
        options: dict[str, Any] = {"max_waiting": 1} if sim.occurs("short queue", 1) else {}
        options["delegates"] = "workers" in sim.features
        options["has_budget"] = "budgets" in sim.features
        name, beats = f"process {self.number}", None
        if "heartbeats" in sim.features:
            beats = parts.heartbeats(run_store, name, sim.now)
        runs = parts.runs(run_store, name, environment.lease_s, policy, heartbeats=beats)
        accounts = parts.budgets(documents, runs.admit, lambda: EPOCH_S + sim.now())
        participation = Participation() if parts.ignores_policy else environment.participation
        instances = [replace(each, participation=participation) for each in _INSTANCES]
        router = Router(instances, runs, TEAM, BOT, bots=_BOTS, own_bot=BOT_IDS[BOT])
        logs = retrying(log_store, policy)
        async with (
            runs,
            parts.sessions(
                _config(environment.approvals, **options),
                "staged",
                workspaces,
                logs,
                environment.idle_evict_s,
                rules=AlwaysRules(documents),
                host=LocalHost(
                    {
                        **(known := parts.workers(documents, runs, lambda: EPOCH_S + sim.now())).functions,
                        **accounts.functions,
                    }
                ),
            ) as sessions,
            RateLimiter(TEAM, scale=scale) as limiter,
            parts.tasks(parts.client(web, limiter), now_s=lambda: EPOCH_S + sim.now()) as tasks,
            WorkerPool(
                context := WorkspaceContext(
                    runs,
                    sessions,
                    tasks,
                    router,
                    (admitter := Admitter(tasks, router, runs, BOT, workers=known)).catch_up,
                    admitter.stop_in_dm,
                    admitter.admit_asked,
                    self.slots,
                    workers=known,
                ),
                runs,
                environment.shutdown_grace_s,
            ) as workers,
        ):
            sessions.watch(sim, self.slots, environment.files.stored)
            slack = Unattended(runs, router, admitter.policy, tasks)
            self.schedules = parts.schedules(documents, lambda: EPOCH_S + sim.now())
            firing: Any = nullcontext()
            if "schedules" in sim.features:
                firing = firing_schedules(self.schedules, slack, environment.schedule_grace_s)
            tasks.options = replace(tasks.options, stream="streams" in sim.features)
            self.intake = Intake(context, runs, workers, admitter, BOT)
            self.notes = Notes(runs.admit, [each.name for each in _INSTANCES])
            reloads, here = itertools.count(1), contextvars.copy_context()
            self.reload = lambda: here.run(
                lambda: (
                    sessions.configure(_config(environment.approvals, f"Reload {next(reloads)}.", **options), ()),
                    router.configure(instances, _NO_CHANNELS, _BOTS),
                    self.slots.configure(self._limits),
                )
            )
            self.is_connected = True
            sim.log("process", f"{self.number} is connected")
            async with firing:
                await self._ended.wait()
            self.is_connected = False
        sim.log("process", f"{self.number} has ended")
