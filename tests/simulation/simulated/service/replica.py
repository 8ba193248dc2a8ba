"""One process of the service: everything of it is real but Slack, the store, and what the agent's modules do."""

from __future__ import annotations

import asyncio
import contextvars
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from connector.conversations.worker_pool import WorkerPool
from connector.inbound.admission import Admitter
from connector.inbound.dispatcher import dispatch
from connector.inbound.intake import Intake
from connector.protocols import Instance, Persona
from connector.routing import Router
from connector.runs.background_tasks import WorkspaceContext
from connector.runs.run_slots import RunLimits
from connector.slack_api.rate_limiter import RateLimiter
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig
from service.store.retry import RetryingStore, StoreRetryPolicy
from simulated.engine import LIFE

from .agent import CAST
from .slack import BOT, TEAM
from .web import Web

if TYPE_CHECKING:
    from service.sessions.workspaces import Workspaces

    from .environment import Ground

_AGENT = ModuleConfig(module="staged", source=str(Path(__file__).parent / "agent_module.py"))
_NAMED = [Instance(name, Persona(name.title(), ":owl:")) for name in ("alpha", "beta")]


def _instances(**options: int) -> dict[str, InstanceConfig]:
    """The configured agents, with these options of their loops."""
    loop = ModuleConfig(module="loop-interactive", config=options)
    personas = {each.name: PersonaConfig(name=each.persona.name, emoji=each.persona.emoji) for each in _NAMED}
    return {
        name: InstanceConfig(persona=persona, providers=(_AGENT,), tools=(), orchestrator=loop)
        for name, persona in personas.items()
    }


_INSTANCES = _instances()
_WITH_A_SHORT_QUEUE = _instances(max_waiting=1)


# Of what Slack allows: calls have to wait for each other then, which they do not otherwise.
_LITTLE_ROOM = 0.4


class _Nowhere:
    """Folders that nobody looks into."""

    limits: ClassVar[dict[str, int]] = {}

    async def check(self) -> None:
        """They are good."""

    def folder(self, conversation_id: str) -> Path:
        return Path("/nowhere") / conversation_id

    async def prepare(self, conversation_id: str) -> None:
        """They are there."""


class Replica:
    """A process from its start to its end. `number` is its life's."""

    def __init__(self, number: int, ground: Ground) -> None:
        self.number = number
        self.is_connected = False
        self.intake: Intake | None = None
        scene = ground.scene
        is_tight = "few slots" in scene.features
        limits = RunLimits(runs_per_person=1, runs_per_channel=2) if is_tight else RunLimits()
        self.slots = ground.parts.slots(scene, limits, scene.seed % 2 if is_tight else 5)
        self._ground = ground
        self._ended = asyncio.Event()

    def start(self) -> asyncio.Task[Any]:
        context = contextvars.copy_context()
        context.run(LIFE.set, self.number)
        context.run(CAST.set, self._ground.cast)
        scene = self._ground.scene
        scene.tell("chaos", f"process {self.number} starts")
        serving = self._serve()
        return scene.loop.create_task(serving, name=f"process {self.number}", context=context)

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end."""
        return self._ended.is_set()

    def terminate(self) -> None:
        """SIGTERM."""
        self._ended.set()

    async def hear(self, event: dict[str, Any]) -> None:
        assert self.intake is not None
        hearing = dispatch(event, TEAM, self.intake)
        if self._ground.parts.is_hasty:
            self._ground.scene.spawn(hearing, "an event that is acknowledged", self.number)
        else:
            await hearing

    async def _serve(self) -> None:
        ground, parts, scene = self._ground, self._ground.parts, self._ground.scene
        run_store, log_store = await ground.stores.doors(self.number)
        patience = StoreRetryPolicy()
        scale = _LITTLE_ROOM if scene.happens("little room", 1) else 1.0
        client = cast("Any", Web(scene, ground.slack, self.number))
        instances = _WITH_A_SHORT_QUEUE if scene.happens("short queue", 1) else _INSTANCES
        runs = parts.runs(run_store, f"process {self.number}", ground.lease_s, patience)
        router = Router(_NAMED, runs, TEAM, BOT)
        async with (
            runs,
            parts.sessions(
                instances,
                "staged",
                cast("Workspaces", _Nowhere()),
                RetryingStore(log_store, patience),
                ground.idle_evict_s,
            ) as sessions,
            RateLimiter(TEAM, scale=scale) as scheduler,
            parts.background(parts.wire(client, scheduler)) as background,
            WorkerPool(
                workspace := WorkspaceContext(
                    sessions,
                    background,
                    router,
                    (admitter := Admitter(background, router, runs, BOT)).catch_up,
                    self.slots,
                ),
                runs,
                ground.shutdown_grace_s,
            ) as conversations,
        ):
            sessions.watch(scene, self.slots)
            self.intake = Intake(workspace, runs, conversations, admitter, BOT)
            self.is_connected = True
            ground.scene.tell("process", f"{self.number} is connected")
            await self._ended.wait()
            self.is_connected = False
        ground.scene.tell("process", f"{self.number} has ended")
