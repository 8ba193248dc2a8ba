"""Coordinator: connects the modules of a session."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.contracts.errors import InjectionTooLargeError
from orchestrator_interactive.kernel.contracts.protocols import ContextManager, Orchestrator, Provider, Tool
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.kernel.hook_actions import HookResultProcessor
from orchestrator_interactive.kernel.hooks import HookRegistry, without_denial

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from orchestrator_interactive.kernel.contracts.models import ContextInjection, HookResult
    from orchestrator_interactive.kernel.contracts.protocols import ApprovalSystem, DisplaySystem, Session

log = structlog.get_logger(__name__)

_SINGLE = ("orchestrator", "context", "module-source-resolver")
_MULTI = ("providers", "tools", "agents")
_POINTS = (*_SINGLE, *_MULTI)
PROTOCOLS = {"orchestrator": Orchestrator, "context": ContextManager, "providers": Provider, "tools": Tool}
# Checking for the members is several times faster than `isinstance` with a protocol.
_MEMBERS = {point: [name for name in vars(each) if name[0] != "_"] for point, each in PROTOCOLS.items()}


class _Completed(Coroutine[None, None, None]):
    """A completed coroutine, so that `mount` works with and without `await`, and in `asyncio.create_task`."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield

    def send(self, _value: None, /) -> NoReturn:
        raise StopIteration

    def throw(self, error: Any, *_: Any) -> NoReturn:
        raise error

    def close(self) -> None: ...


_COMPLETED = _Completed()


class ModuleCoordinator:
    """Mount points, capabilities, contributions, clean-up and hook results of one session."""

    def __init__(
        self,
        session: Session,
        approval_system: ApprovalSystem | None = None,
        display_system: DisplaySystem | None = None,
    ) -> None:
        self._session = session
        self.approval_system = approval_system
        self.display_system = display_system
        # Data that modules share during the session, as in amplifier_core.
        self.session_state: dict[str, Any] = {}
        # Ephemeral injections of hooks for the next request.
        self.ephemeral: list[ContextInjection] = []
        self.hooks = HookRegistry()
        self.cancellation = CancellationToken()
        # amplifier_core's modules access this attribute directly.
        self.mount_points: dict[str, Any] = {
            **dict.fromkeys(_SINGLE),
            **{point: {} for point in _MULTI},
            "hooks": self.hooks,
        }
        self._capabilities: dict[str, Any] = {}
        self._contributors: defaultdict[str, list[tuple[str, Callable[[], Any]]]] = defaultdict(list)
        self._cleanups: list[Callable[[], Any]] = []
        self._hook_results = HookResultProcessor(self, self.hooks)

    @property
    def session(self) -> Session:
        return self._session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def parent_id(self) -> str | None:
        return self._session.parent_id

    @property
    def config(self) -> dict[str, Any]:
        return self._session.config

    @property
    def loader(self) -> Any:
        return self._session.loader

    @property
    def injection_budget_per_turn(self) -> int | None:
        """Tokens that hooks may inject in one turn; `None` is unlimited. Exceeding it logs a warning."""
        budget: int | None = (self.config.get("session") or {}).get("injection_budget_per_turn")
        return budget

    @property
    def injection_size_limit(self) -> int | None:
        """Maximum size of one injection in bytes (UTF-8); `None` is unlimited.

        The specification's example compares it with `len(content)`, which counts characters; the limit is in bytes.
        """
        limit: int | None = (self.config.get("session") or {}).get("injection_size_limit")
        return limit

    def mount(self, mount_point: str, module: Any, name: str | None = None) -> Awaitable[None]:
        """Mount a module. It is mounted when this returns, awaited or not.

        `mount("session", x, name="orchestrator")` is the contracts' alternative form of `mount("orchestrator", x)`.
        A module that lacks members of its protocol is mounted with a warning, because the specification mounts such.

        Raises:
            ValueError: unknown mount point, mount point "hooks", `module` is None, or neither `name` nor `module.name`.
        """
        point, name = self._resolve(mount_point, name)
        holder, key = self.mount_points, point
        if module is None:
            raise ValueError(f"module is None; to empty '{point}', unmount its module.")
        if point in _MULTI:
            holder, key = self.mount_points[point], name or getattr(module, "name", None) or ""
            if not isinstance(key, str) or not key.strip():
                raise ValueError(f"Name required to mount at '{point}': pass name=… or give the module a `name`.")
        if holder.get(key) is not None:
            log.warning("module.replaced", mount_point=point, name=key)
        holder[key] = module
        log.debug("module.mounted", mount_point=point, name=key, module=type(module).__name__)
        if problem := protocol_problem(point, module):
            log.warning("module.incomplete", mount_point=point, name=key, problem=problem)
        return _COMPLETED

    def unmount(self, mount_point: str, name: str | None = None) -> Awaitable[None]:
        """Remove a module from its mount point.

        Raises:
            ValueError: unknown mount point, missing name, or no module of that name.
        """
        point, name = self._resolve(mount_point, name)
        if point in _SINGLE:
            self.mount_points[point] = None
        elif not name:
            raise ValueError(f"Name required to unmount from '{point}'.")
        elif name not in self.mount_points[point]:
            raise ValueError(f"Nothing named '{name}' is mounted at '{point}'.")
        else:
            del self.mount_points[point][name]
        log.debug("module.unmounted", mount_point=point, name=name)
        return _COMPLETED

    def get(self, mount_point: str, name: str | None = None) -> Any:
        """Return the module of a single mount point; of a multi one, the named module or the whole dictionary."""
        if mount_point == "hooks":
            return self.hooks
        point, name = self._resolve(mount_point, name)
        mounted = self.mount_points[point]
        return mounted if point in _SINGLE or name is None else mounted.get(name)

    def register_capability(self, name: str, value: Any) -> None:
        """Register a value for other modules; a later value of the same name replaces it.

        Raises:
            ValueError: `name` is not a string, or blank.
        """
        _check_text(name, "name")
        self._capabilities[name] = value
        log.debug("capability.registered", name=name)

    def get_capability(self, name: str) -> Any | None:
        return self._capabilities.get(name)

    def register_contributor(self, channel: str, name: str, callback: Callable[[], Any]) -> None:
        """Register a contributor to a channel. The callback may be async; `None` means no contribution.

        Raises:
            ValueError: `channel` is not a string, or blank.
            TypeError: `callback` cannot be called.
        """
        _check_text(channel, "channel")
        if not callable(callback):
            raise TypeError(f"callback must be a function that returns the contribution, not {callback!r}.")
        self._contributors[channel].append((name, callback))

    async def collect_contributions(self, channel: str) -> list[Any]:
        """Return the contributions to a channel in order of registration; log and skip failing contributors."""
        collected = []
        for name, callback in tuple(self._contributors.get(channel, ())):
            value = None
            with ErrorBoundary(log, "contributor.failed", channel=channel, contributor=name):
                value = await _call(callback)
            if value is not None:
                collected.append(value)
        return collected

    def checkpoint(self) -> Callable[[], Awaitable[None]]:
        """Return a function that undoes all later registrations and mounts and runs their clean-ups."""
        mounted = {point: dict(held) if point in _MULTI else held for point, held in self.mount_points.items()}
        capabilities, contributors = dict(self._capabilities), {c: list(n) for c, n in self._contributors.items()}
        cleanups, handlers = len(self._cleanups), self.hooks.checkpoint()

        async def undo() -> None:
            self.hooks.unregister_since(handlers)
            for point, held in mounted.items():
                if point in _MULTI:
                    self.mount_points[point].clear()
                    self.mount_points[point].update(held)
                else:
                    self.mount_points[point] = held
            self._capabilities = capabilities
            self._contributors = defaultdict(list, contributors)
            await self._clean_up_to(cleanups)

        return undo

    def register_cleanup(self, cleanup_fn: Callable[[], Any]) -> None:
        self._cleanups.append(cleanup_fn)

    async def cleanup(self) -> None:
        """Run the clean-ups, last registered first; failures are logged."""
        await self._clean_up_to(0)

    async def _clean_up_to(self, count: int) -> None:
        leaving: asyncio.CancelledError | KeyboardInterrupt | None = None
        while len(self._cleanups) > count:
            cleanup_fn = self._cleanups.pop()
            name = getattr(cleanup_fn, "__qualname__", type(cleanup_fn).__name__)
            try:
                with ErrorBoundary(log, "cleanup.failed", cleanup=name):
                    await _call(cleanup_fn)
            except (asyncio.CancelledError, KeyboardInterrupt) as e:  # re-raised after the others
                leaving = e
        if leaving is not None:
            raise leaving

    def reset_turn(self) -> None:
        """Reset the injection budget for a new turn."""
        self._hook_results.injected_tokens = 0

    @property
    def _current_turn_injections(self) -> int:
        """Estimated tokens that hooks have injected in this turn; the specification's name."""
        return self._hook_results.injected_tokens

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Route a hook result to context, approvals and display. See `HookResultProcessor.process`.

        The specification's orchestrator example iterates over the result of `emit` and checks for an action
        `modify_input`; by its text `emit` returns one result (`emit_and_collect` one per handler), and `modify`
        changes the input.
        """
        return await self._hook_results.process(result, event, hook_name)

    async def request_cancel(self, immediate: bool = False) -> None:
        """Cancel the run of this session, and await the `on_cancel` callbacks of its token."""
        if immediate:
            self.cancellation.request_immediate()
        else:
            self.cancellation.request_graceful()
        await self.cancellation.trigger_callbacks()

    def _resolve(self, mount_point: str, name: str | None) -> tuple[str, str | None]:
        if mount_point in _POINTS:
            return mount_point, name
        _check_text(mount_point, "mount_point")
        if mount_point == "session":
            if name not in _SINGLE:
                raise ValueError(f"The alias 'session' takes name='orchestrator' or 'context', not {name!r}.")
            return name, None
        if mount_point == "hooks":
            raise ValueError("Hooks are not mounted: register handlers with coordinator.hooks.register(…).")
        raise ValueError(f"Unknown mount point '{mount_point}'. There are: {', '.join(_POINTS)}.")


def protocol_problem(point: str, module: Any) -> str | None:
    """Return which members of the mount point's protocol a module lacks, or has as `None`; `None` if it has all."""
    missing = []
    for name in _MEMBERS.get(point, ()):
        with suppress(Exception):  # a property that fails now is there
            if getattr(module, name, None) is None:
                missing.append(name)
    if not missing:
        return None
    return (
        f"a {type(module).__name__} as {point.removesuffix('s')}, which lacks {', '.join(missing)} of the contract "
        f"(see `{PROTOCOLS[point].__name__}` in kernel/contracts/protocols.py)"
    )


async def announce(coordinator: ModuleCoordinator, event: str, data: dict[str, Any]) -> None:
    """Emit an event that reports a past fact, and apply its result. A deny has no effect.

    Ephemeral injections become part of the next request; amplifier_core's coordinator cannot keep them.
    """
    if not coordinator.hooks.listens(event):
        return
    hook_result = without_denial(await coordinator.hooks.emit(event, data), event)
    try:
        hook_result = await coordinator.process_hook_result(hook_result, event, hook_result.hook_name)
    except InjectionTooLargeError as e:
        log.warning("hook.injection_refused", hook=hook_result.hook_name, hook_event=event, error=str(e))
        hook_result = e.rest
    kept: list[ContextInjection] = getattr(coordinator, "ephemeral", [])
    kept += [injection for injection in hook_result.injections() if injection.ephemeral]


def _check_text(value: Any, argument: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{argument} must be a name, not {value!r}.")


async def _call(callback: Callable[[], Any]) -> Any:
    value = callback()
    return await value if inspect.isawaitable(value) else value
