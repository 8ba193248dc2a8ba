"""Sandbox for a module: a session with a real coordinator, an empty folder, and a recording of all events."""

from __future__ import annotations

import copy
import inspect
import tempfile
from contextlib import asynccontextmanager, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.testing import TestCoordinator
from orchestrator_interactive.validation.runner import CANCEL_GRACE_S, ending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.hooks import Handler
    from orchestrator_interactive.kernel.loading.importing import MountFunction
    from orchestrator_interactive.validation.report import ModuleType

    Ready = Callable[[Any], Coroutine[Any, Any, None]]

MOUNT_POINTS: Mapping[ModuleType, str] = {
    "orchestrator": "orchestrator",
    "context": "context",
    "provider": "providers",
    "tool": "tools",
}

_OF_THE_KERNEL = list(events.ALL_EVENTS)

# Methods that identify the type of an unmounted instance; the first match wins.
_METHODS: Mapping[ModuleType, tuple[str, ...]] = {
    "provider": ("complete", "parse_tool_calls"),
    "context": ("add_message", "get_messages"),
    "tool": ("execute", "description"),
    "orchestrator": ("execute",),
}


@dataclass(frozen=True, slots=True)
class Registration:
    """A handler that was registered for an event."""

    event: str
    handler: Handler
    priority: int
    name: str


@dataclass(frozen=True, slots=True)
class Emitted:
    event: str
    data: dict[str, Any]


class RecordingHooks(HookRegistry):
    """A registry that records registrations and emitted events, and listens to every event."""

    def __init__(self) -> None:
        super().__init__()
        self.registrations: list[Registration] = []
        self.emitted: list[Emitted] = []

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        unregister = super().register(event, handler, priority, name)
        known_as = name or getattr(handler, "__name__", None) or type(handler).__name__
        self.registrations.append(Registration(event, handler, priority, known_as))
        return unregister

    on = register

    def listens(self, event: str) -> bool:  # noqa: ARG002 - for every event
        return True

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        self.emitted.append(Emitted(event, dict(data or {})))
        return await super().emit(event, data)

    async def emit_and_collect(
        self,
        event: str,
        data: dict[str, Any] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
    ) -> list[HookResult]:
        self.emitted.append(Emitted(event, dict(data or {})))
        return await super().emit_and_collect(event, data, timeout)

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the data of every emission of an event, in order."""
        return [emitted.data for emitted in self.emitted if emitted.event == event]


class RecordingCoordinator(TestCoordinator):
    """A test coordinator that listens to every event and records registered clean-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.recording = RecordingHooks()
        self.recording.set_default_fields(session_id=self.session_id, parent_id=self.parent_id)
        self.hooks = self.recording
        self.cleanups: list[Callable[[], Any]] = []
        # As a session does.
        self.register_contributor("observability.events", "kernel", lambda: _OF_THE_KERNEL)

    def register_cleanup(self, cleanup_fn: Callable[[], Any]) -> None:
        self.cleanups.append(cleanup_fn)
        super().register_cleanup(cleanup_fn)


@dataclass(frozen=True, slots=True)
class Mounted:
    """An instance that a module mounted, or that its `mount` returned to be mounted."""

    module_type: ModuleType
    name: str
    instance: Any


@dataclass(frozen=True, slots=True)
class ValidationSandbox:
    """A session with the module mounted. `returned` is the return value of its `mount`."""

    coordinator: RecordingCoordinator
    mounted: tuple[Mounted, ...]
    returned: Any

    @property
    def hooks(self) -> RecordingHooks:
        return self.coordinator.recording

    @property
    def types(self) -> frozenset[ModuleType]:
        """Types of the mounted instances; "hook" if handlers are registered."""
        handlers: frozenset[ModuleType] = frozenset({"hook"} if self.hooks.registrations else ())
        return handlers | {mounted.module_type for mounted in self.mounted}

    def all(self, module_type: ModuleType) -> tuple[Mounted, ...]:
        return tuple(mounted for mounted in self.mounted if mounted.module_type == module_type)

    def one(self, module_type: ModuleType) -> Any:
        """Return the mounted instance of a type that has only one."""
        return self.all(module_type)[0].instance

    def cleanups(self) -> list[Callable[[], Any]]:
        """Return the clean-ups: the one that `mount` returned, then the registered ones, latest first."""
        is_instance = any(self.returned is mounted.instance for mounted in self.mounted)
        returned = [] if is_instance or not callable(self.returned) else [self.returned]
        return [*returned, *reversed(self.coordinator.cleanups)]

    async def contributed_events(self) -> set[str]:
        """Return the event names that the module contributes to `observability.events`."""
        collected = await self.coordinator.collect_contributions("observability.events")
        collected.remove(_OF_THE_KERNEL)
        return {name for names in collected for name in ([names] if isinstance(names, str) else names)}


class SandboxSession:
    """Mounts a module in sandboxes, each a new session in a new empty folder under `home`."""

    def __init__(self, mount: MountFunction, ready: Ready | None, config: dict[str, Any], home: Path) -> None:
        self._mount = mount
        self._ready = ready
        self.config = config
        self._home = home

    def configured(self, config: dict[str, Any]) -> SandboxSession:
        return SandboxSession(self._mount, self._ready, config, self._home)

    def unready(self) -> SandboxSession:
        """Return a copy whose sessions do not call `on_session_ready`."""
        return SandboxSession(self._mount, None, self.config, self._home)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ValidationSandbox]:
        """Mount the module in a new session; afterwards run its clean-ups, each with a time limit."""
        # The folder is not deleted: abandoned tasks may still use it.
        with chdir(tempfile.mkdtemp(dir=self._home)):
            coordinator = RecordingCoordinator()
            coordinator.register_capability("session.working_dir", str(Path.cwd()))
            returned = await self._mount(coordinator, copy.deepcopy(self.config))
            sandbox = ValidationSandbox(coordinator, _mounted(coordinator, returned), returned)
            try:
                if self._ready is not None:
                    await ending(self._ready(coordinator), CANCEL_GRACE_S)
                yield sandbox
            finally:
                for clean_up in sandbox.cleanups():
                    await ending(called(clean_up), CANCEL_GRACE_S)


async def called(function: Callable[[], Any]) -> Any:
    """Call a function that may be async, and return its result."""
    value = function()
    return await value if inspect.isawaitable(value) else value


def _mounted(coordinator: TestCoordinator, returned: Any) -> tuple[Mounted, ...]:
    found: list[Mounted] = []
    for module_type, point in MOUNT_POINTS.items():
        there = coordinator.get(point)
        named = there if isinstance(there, dict) else {point: there} if there is not None else {}
        found += [Mounted(module_type, name, instance) for name, instance in named.items()]
    if not found and (returned_type := type_of_instance(returned)):
        name = getattr(returned, "name", None) or returned_type
        coordinator.mount(MOUNT_POINTS[returned_type], returned, name=name)
        found.append(Mounted(returned_type, name, returned))
    return tuple(found)


def type_of_instance(instance: Any) -> ModuleType | None:
    """Detect the type of an instance by its methods; `None` for a function, a class and other objects."""
    if inspect.isroutine(instance) or inspect.isclass(instance):
        return None
    fitting = (kind for kind, names in _METHODS.items() if all(hasattr(instance, name) for name in names))
    return next(fitting, None)
