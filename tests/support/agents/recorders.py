"""A recorder for events, and a context that can be watched and held."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from orchestrator_interactive.kernel import (
    HookRegistry,
    HookResult,
    ModuleCoordinator,
    ModuleLoader,
)
from orchestrator_interactive.modules import context_simple

from .milestones import Milestones
from .rows import OnRow, Row


class Recorder:
    """Keeps events in order, from hooks or from progress; `act_on` does something at the instant of one."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._reached: defaultdict[str, Milestones] = defaultdict(Milestones)
        self._actions: dict[str, list[Callable[[], object]]] = {}
        self._gates: dict[str, asyncio.Event] = {}

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        self.seen.append((event, data))
        for action in self._actions.pop(event, ()):
            action()
        self._reached[event].pass_one()
        if event in self._gates:
            await self._gates[event].wait()
        return HookResult()

    def act_on(self, event: str, action: Callable[[], object]) -> None:
        """Do something the next time this event comes."""
        self._actions.setdefault(event, []).append(action)

    def hold(self, event: str, gate: asyncio.Event) -> None:
        self._gates[event] = gate

    def release(self) -> None:
        """Hold no event any more."""
        self._gates.clear()

    def listen(self, hooks: HookRegistry, *events: str) -> Recorder:
        for event in events:
            hooks.register(event, self, name="recorder")
        return self

    def names(self) -> list[str]:
        return [event for event, _ in self.seen]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.seen if name == event]

    async def reached(self, event: str, number: int = 1) -> None:
        await self._reached[event].reached(number)


class ObservedContext:
    """A context with something to do right before a row is added, or right after."""

    def __init__(self, inner: context_simple.SimpleContext) -> None:
        self._inner = inner
        self.before: OnRow | None = None
        self.after: OnRow | None = None
        self.get_messages = inner.get_messages
        self.set_messages = inner.set_messages
        self.clear = inner.clear
        self.get_messages_for_request = inner.get_messages_for_request

    def refuse(self, which: Callable[[Row], object]) -> None:
        """Fail to add the rows for which the function is true, until `accept`."""

        async def refuse(row: Row) -> None:
            if which(row):
                raise OSError("disk full")

        self.before = refuse

    def accept(self) -> None:
        """Add every row again."""
        self.before = self.after = None

    def act(self, moment: Literal["before", "after"], action: Callable[[Row], object]) -> None:
        """Do something with every row before or after it is added."""

        async def act(row: Row) -> None:
            action(row)

        setattr(self, moment, act)

    def hold(self, moment: Literal["before", "after"], which: Callable[[Row], object]) -> asyncio.Event:
        """Hold the first row for which the function is true, for good; return the event of its arrival."""
        reached = asyncio.Event()

        async def hold(row: Row) -> None:
            if which(row):
                reached.set()
                await asyncio.Event().wait()

        setattr(self, moment, hold)
        return reached

    async def add_message(self, message: Row) -> None:
        if self.before:
            await self.before(message)
        await self._inner.add_message(message)
        if self.after:
            await self.after(message)


class StaticLoader:
    """A module loader for the test's own modules and the installed ones."""

    def __init__(self, **mounts: Callable[[ModuleCoordinator, dict[str, Any]], Awaitable[Any]]) -> None:
        self._mounts = mounts

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        if module_id not in self._mounts:
            return await ModuleLoader().load(module_id, config, profile_source)
        mount = self._mounts[module_id]

        async def mount_with_config(coordinator: ModuleCoordinator) -> Any:
            return await mount(coordinator, config or {})

        return mount_with_config


async def mount_observed_context(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    inner = await context_simple.mount(coordinator, config)
    await coordinator.unmount("context")
    await coordinator.mount("context", ObservedContext(inner))
