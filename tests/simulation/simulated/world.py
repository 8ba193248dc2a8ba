"""One conversation: its agent, its people, its runs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import orchestrator_interactive
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.modules import context_simple, context_stack

from . import features
from .actors import Approvals, Crowd, Ear, Log, Model, Watcher, hire_hooks, hire_tools
from .actors.responses import Improviser
from .actors.tools import favourites
from .invariants import Invariants, RunRecord, Terms
from .posts import People

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel import ModuleCoordinator, ModuleLoader
    from orchestrator_interactive.kernel.contracts.protocols import ContextManager

    from .posts import Post
    from .scenario import Scenario

    Mount = Callable[[ModuleCoordinator, dict[str, Any]], Awaitable[Any]]


def _as_it_is(log: ContextManager) -> ContextManager:
    return log


@dataclass(frozen=True, slots=True)
class Parts:
    """What is tried: the loop, and what lies between it and its log. `features` are added to those of every seed."""

    mount_loop: Mount = orchestrator_interactive.mount
    wrap_log: Callable[[ContextManager], Any] = _as_it_is
    features: frozenset[str] = frozenset()


class World:
    """Plays a conversation on the scene."""

    def __init__(self, scene: Scenario, parts: Parts) -> None:
        scene.features |= features.drawn(scene.chance) | parts.features
        self._scene = scene
        self._parts = parts
        self._terms = Terms.drawn(scene.chance, scene.features)
        self._judges = Invariants(scene, self._terms)
        self._people = People(scene)
        self._watcher = Watcher(scene, self._judges)
        self._tools = hire_tools(scene, self._judges)
        improviser = Improviser(scene, favourites(scene, self._tools), self._terms.stall_timeout_s)
        self._models = [Model(name, scene, self._judges, improviser) for name in self._terms.providers]
        self._plan = self._planned()
        self._store = MemoryStore() if "interaction stack" in scene.features else None
        self._runs = 0
        self._life = self._last_life = 0

    async def play(self) -> None:
        """All runs of the conversation; the last ones, in calm, read whatever is still waiting."""
        await self._set_up()
        self._crowd = Crowd(self._scene, self._judges, self._people, self._session)
        for _ in range(self._scene.chance.choice([1, 2, 2, 3, 4])):
            await self._run()
            await asyncio.sleep(self._scene.some_s(0.1, 10))
            self._crowd.act_idly()
        self._scene.calm = True
        await self._run()
        while self._crowd.unread and not self._scene.blames:
            await self._run()
        await asyncio.sleep(3600)
        await self._session.cleanup()
        self._judges.all_over()

    async def _set_up(self) -> None:
        self._life += 1
        scene, judges = self._scene, self._judges
        approvals = Approvals(scene)
        shelf = _Shelf({"loop": self._parts.mount_loop, "log": self._mount_log})
        self._session = AmplifierSession(
            self._plan,
            loader=cast("ModuleLoader", shelf),
            session_id="simulated",
            approval_system=approvals,
            display_system=approvals,
            is_resumed=self._life > 1,
        )
        await self._session.initialize()
        coordinator = self._session.coordinator
        Ear(scene, judges).listen(coordinator.hooks)
        hire_hooks(scene, judges, coordinator.hooks)
        for tool in self._tools:
            coordinator.mount("tools", tool)
        for model in self._models:
            coordinator.mount("providers", model, name=model.name)

    def _planned(self) -> dict[str, Any]:
        chance, features = self._scene.chance, self._scene.features
        log: dict[str, Any] = {"max_tokens": chance.choice([300, 400]) if "compaction" in features else 100_000}
        if "summaries" in features:
            log |= {"strategy": "summary", "summary_max_tokens": 60, "summary_timeout_s": 5.0}
        if chance.random() < 0.5:
            log["system_prompt"] = "You are simulated."
        session = {
            "orchestrator": {"module": "loop", "config": self._terms.options()},
            "context": {"module": "log", "config": log},
            "hook_timeout_s": chance.choice([1, 5, 60]),
        }
        if "injection limit" in features:
            session["injection_size_limit"] = 30
        return {"session": session}

    async def _mount_log(self, coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        if self._store is None:
            inner: ContextManager = await context_simple.mount(coordinator, config)
        else:
            coordinator.register_capability("interactions.store", self._store)
            await context_stack.mount(coordinator, config)
            inner = coordinator.get("context")
        coordinator.unmount("context")
        coordinator.mount("context", self._parts.wrap_log(Log(inner, self._scene, self._judges)))

    async def _run(self) -> None:
        self._runs += 1
        begins_a_life = self._life != self._last_life
        self._last_life = self._life
        run = RunRecord(self._runs, self._next_prompt(), self._life, begins_a_life)
        self._scene.tell(
            "crowd", f"prompts run {run.number}{' in calm' if self._scene.calm else ''}: {run.prompt.text!r}"
        )
        task = self._scene.spawn(self._execute(run), f"run {run.number}", run.life)
        self._crowd.watch(run, task)
        killing = self._scene.spawn(self._crowd.killed.wait(), "a kill")
        await asyncio.wait([task, killing], return_when=asyncio.FIRST_COMPLETED)
        killing.cancel()
        if run.killed:
            await self._restart(run)
        self._conclude(run)

    async def _restart(self, run: RunRecord) -> None:
        """Another process takes over: it has the rows, and is given the messages that are in none of them."""
        self._scene.leave_all()
        self._judges.killed(run)
        rows = await self._session.coordinator.get("context").get_messages()
        self._judges.spending.restarted(rows)
        await self._set_up()
        context = self._session.coordinator.get("context")
        if self._store is None:
            await context.set_messages(rows)
        elif await context.get_messages() != rows:
            self._scene.blame("After a kill the log is not what it was.")
        self._crowd.meet(self._session)
        for post in self._judges.deliveries.waiting_anew():
            self._crowd.give(post)

    def _next_prompt(self) -> Post:
        return self._crowd.unread.pop(0) if self._crowd.unread else self._people.write(plainly=True)

    async def _execute(self, run: RunRecord) -> None:
        run.entered = True
        self._scene.finishing = False
        if self._terms.max_duration_s is not None:
            run.deadline_s = self._scene.now() + self._terms.max_duration_s
        self._judges.begin(run)
        self._judges.prompted(run.prompt)
        try:
            run.answer = await self._session.execute(run.prompt.text, on_progress=self._watcher)
        except BaseException as e:  # noqa: BLE001 - whatever it is, the judges look at it
            run.error = e
        run.over = True
        self._scene.tell("run", f"returned {run.answer!r}" if run.error is None else f"raised {run.error!r}")
        run.statuses["session"] = self._session.status.status
        self._judges.returned(run)
        receipts: Any = self._session.coordinator.get_capability("orchestrator.receipts")
        self._judges.receipts.told(run, map(asdict, receipts()), where="The agent")

    def _conclude(self, run: RunRecord) -> None:
        scene = self._scene
        status = "killed" if run.killed else run.statuses.get("progress", "never begun")
        scene.count(f"run ended: {status}")
        if scene.calm and status != "success":
            scene.blame(f"In calm the run ended with '{status}' (error: {run.error!r}).")
        if self._judges.deliveries.has_arrived(run.prompt):
            return
        if run.was_denied:
            scene.count("prompt denied")
        else:
            scene.count("prompt not read, given again")
            self._crowd.unread.insert(0, run.prompt)


class _Shelf:
    """A module loader that has these modules at hand."""

    def __init__(self, mounts: dict[str, Mount]) -> None:
        self._mounts = mounts

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        async def mount(coordinator: ModuleCoordinator) -> Any:
            return await self._mounts[module_id](coordinator, config or {})

        return mount
