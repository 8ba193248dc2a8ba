"""Sessions with the validated module mounted, each in an empty folder, with a recording of all events."""

from __future__ import annotations

import asyncio
import copy
import inspect
import tempfile
from contextlib import asynccontextmanager, chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.testing import EventRecorder, TestCoordinator
from orchestrator_interactive.validation.runner import CANCEL_GRACE_S, called, cancel_in_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from orchestrator_interactive.kernel.hooks import Handler
    from orchestrator_interactive.validation.report import ModuleType

MOUNT_POINTS: Mapping[ModuleType, str] = {
    "orchestrator": "orchestrator",
    "context": "context",
    "provider": "providers",
    "tool": "tools",
}
# Methods that identify the type of an unmounted instance; the first match wins.
_METHODS: Mapping[ModuleType, tuple[str, ...]] = {
    "provider": ("complete", "parse_tool_calls"),
    "context": ("add_message", "get_messages"),
    "tool": ("execute", "description"),
    "orchestrator": ("execute",),
}
_OF_THE_KERNEL = list(events.ALL_EVENTS)


class Registration(NamedTuple):
    """A handler that was registered for an event."""

    event: str
    handler: Handler
    priority: int
    name: str


class Mounted(NamedTuple):
    """An instance that a module mounted, or that its `mount` returned to be mounted."""

    module_type: ModuleType
    name: str
    instance: Any


class RecordingHooks(EventRecorder):
    """Records registrations besides events."""

    def __init__(self) -> None:
        super().__init__()
        self.registrations: list[Registration] = []

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        known_as = name or getattr(handler, "__name__", None) or type(handler).__name__
        self.registrations.append(Registration(event, handler, priority, known_as))
        return super().register(event, handler, priority, name)

    on = register


class SandboxCoordinator(TestCoordinator):
    """A test coordinator that records events, registrations and clean-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks = self.recorded = RecordingHooks()
        self.hooks.set_default_fields(session_id=self.session_id, parent_id=self.parent_id)
        self.cleanups: list[Callable[[], Any]] = []
        self.register_contributor("observability.events", "kernel", lambda: _OF_THE_KERNEL)  # as a session does
        self.register_capability("session.working_dir", str(Path.cwd()))

    def register_cleanup(self, cleanup_fn: Callable[[], Any]) -> None:
        self.cleanups.append(cleanup_fn)
        super().register_cleanup(cleanup_fn)


class Sandbox:
    """A session with the module mounted. `returned` is the return value of its `mount`."""

    def __init__(self, coordinator: SandboxCoordinator, returned: Any) -> None:
        self.coordinator, self.hooks, self.returned = coordinator, coordinator.recorded, returned
        self.mounted: list[Mounted] = []
        for module_type, point in MOUNT_POINTS.items():
            there = coordinator.get(point)
            named = there if isinstance(there, dict) else {point: there} if there is not None else {}
            self.mounted += [Mounted(module_type, name, instance) for name, instance in named.items()]
        # Some modules return their instance instead of mounting it.
        is_instance = not (self.mounted or inspect.isroutine(returned) or inspect.isclass(returned))
        by_methods = (each for each, names in _METHODS.items() if all(hasattr(returned, name) for name in names))
        if is_instance and (returned_type := next(by_methods, None)):
            name = getattr(returned, "name", None) or returned_type
            coordinator.mount(MOUNT_POINTS[returned_type], returned, name=name)
            self.mounted.append(Mounted(returned_type, name, returned))

    @property
    def types(self) -> set[ModuleType]:
        """Types of the mounted instances; "hook" if handlers are registered."""
        handlers: set[ModuleType] = {"hook"} if self.hooks.registrations else set()
        return handlers | {mounted.module_type for mounted in self.mounted}

    def all(self, module_type: ModuleType) -> list[Mounted]:
        return [mounted for mounted in self.mounted if mounted.module_type == module_type]

    def cleanups(self) -> list[Callable[[], Any]]:
        """Return the clean-ups: the one that `mount` returned, then the registered ones, latest first."""
        is_instance = any(self.returned is mounted.instance for mounted in self.mounted)
        returned = [] if is_instance or not callable(self.returned) else [self.returned]
        return [*returned, *reversed(self.coordinator.cleanups)]

    async def clean_up(self) -> None:
        for clean_up in self.cleanups():
            await called(clean_up)

    async def contributed_events(self) -> set[str]:
        """Return the event names that the module contributes to `observability.events`."""
        collected = await self.coordinator.collect_contributions("observability.events")
        collected.remove(_OF_THE_KERNEL)
        return {name for names in collected for name in ([names] if isinstance(names, str) else names)}


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Mounts a module in sandboxes, each a new session in a new empty folder under `home`.

    `ready` is the module's `on_session_ready`, if a session can call it.
    """

    mount: Callable[..., Coroutine[Any, Any, Any]]
    ready: Callable[..., Coroutine[Any, Any, None]] | None
    home: Path
    config: dict[str, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sandbox]:
        """Mount the module in a new session; afterwards run its clean-ups, each with a time limit."""
        # The folder is not deleted: abandoned tasks may still use it.
        with chdir(tempfile.mkdtemp(dir=self.home)):
            coordinator = SandboxCoordinator()
            sandbox = Sandbox(coordinator, await self.mount(coordinator, copy.deepcopy(self.config)))
            try:
                if self.ready is not None:
                    await _attempt(self.ready(coordinator))
                yield sandbox
            finally:
                for clean_up in sandbox.cleanups():
                    await _attempt(called(clean_up))


async def _attempt(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run code whose errors other rules report."""
    task = asyncio.create_task(coroutine)
    await asyncio.wait({task}, timeout=CANCEL_GRACE_S)
    if task.done() or await cancel_in_time(task):
        _ = task.cancelled() or task.exception()
