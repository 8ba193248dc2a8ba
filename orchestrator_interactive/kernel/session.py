"""Session: mounts the modules of a plan and runs prompts."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from collections import OrderedDict
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.conversion import local_errors
from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.kernel.contracts.models import SessionStatus
from orchestrator_interactive.kernel.coordinator import PROTOCOLS, ModuleCoordinator, announce, protocol_problem
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, convert_exits, error_text
from orchestrator_interactive.kernel.loading.loader import ModuleLoader
from orchestrator_interactive.kernel.plan import MountPlan, merge_configs
from orchestrator_interactive.kernel.timeout import CANCEL_GRACE_S, with_timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.kernel.contracts.protocols import ApprovalSystem, DisplaySystem
    from orchestrator_interactive.kernel.loading.loader import ReadyCallback
    from orchestrator_interactive.kernel.plan import ModuleSpec

log = structlog.get_logger(__name__)

# Arguments that a loop may lack: a session without them works as the contract says.
_EXPENDABLE = {"coordinator", "on_progress", "message_id", "order", "notices", "talk"}


class AmplifierSession:
    """Modules and state of an agent for one conversation.

    Args:
        config: mount plan: `session.orchestrator`, `session.context`, `providers`, `tools`, `hooks`; optional in
            `session`: `injection_budget_per_turn` (tokens), `injection_size_limit` (bytes), `hook_timeout_s`.
        parent_id: id of the session that this one was forked from.
        is_resumed: whether it resumes an earlier session; emits `session:resume` instead of `session:start`.

    Raises:
        ValueError: the mount plan has no orchestrator or no context, or a part of the wrong type.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the signature is the contract's
        self,
        config: dict[str, Any],
        loader: ModuleLoader | None = None,
        session_id: str | None = None,
        parent_id: str | None = None,
        approval_system: ApprovalSystem | None = None,
        display_system: DisplaySystem | None = None,
        is_resumed: bool = False,
    ) -> None:
        plan = MountPlan.from_config(config)
        if session_id is not None and not isinstance(session_id, str):
            raise ValueError(f"session_id must be text, not {session_id!r}.")
        self.config = config
        self.session_id = session_id or str(uuid.uuid4())
        self.parent_id = parent_id
        self.status = SessionStatus(session_id=self.session_id)
        self._is_resumed = is_resumed
        self._lifecycle: Literal["new", "ready", "ended"] = "new"
        self._lifecycle_lock = _LifecycleLock()
        # The task of the current run, and what its end sets.
        self._run: tuple[asyncio.Task[Any] | None, asyncio.Event] | None = None
        self._prompts = 0
        self._started_at = time.monotonic()
        self.coordinator = ModuleCoordinator(self, approval_system, display_system)
        self.coordinator.hooks.set_default_fields(session_id=self.session_id, parent_id=parent_id)
        if plan.hook_timeout_s is not None:
            self.coordinator.hooks.timeout_s = plan.hook_timeout_s
        self.loader = ModuleLoader() if loader is None else loader
        if getattr(self.loader, "coordinator", self) is None:
            self.loader.coordinator = self.coordinator
        self._mounting = _Mounting(plan, self.coordinator, self.loader)

    async def initialize(self) -> None:
        """Mount the plan's modules. If this fails, the session has ended.

        A provider, tool or hook that fails is skipped and reported by `module:load_failed`.

        Raises:
            ModuleNotFoundError, ModuleLoadError: the orchestrator or the context cannot be mounted.
            RuntimeError: the session has ended, or the current task is already initializing it.
        """
        if self._lifecycle == "ready" and not self._lifecycle_lock.is_held_by_another:
            return
        async with self._lifecycle_lock:
            if self._lifecycle == "ended":
                raise RuntimeError("This session has ended; make a new one.")
            if self._lifecycle == "new":
                try:
                    await self._mounting.mount()
                except BaseException:
                    await self._end()
                    raise
                self._lifecycle = "ready"
                payload = {"session_id": self.session_id, "parent_id": self.parent_id, "config": self.config}
                if self.parent_id is not None:
                    await announce(self.coordinator, events.SESSION_FORK, {**payload, "parent": self.parent_id})
                await announce(
                    self.coordinator, events.SESSION_RESUME if self._is_resumed else events.SESSION_START, payload
                )

    async def execute(self, prompt: str, **kwargs: Any) -> str:
        """Run a prompt; keyword arguments go to the orchestrator. Errors keep their type.

        Cancelling the task that awaits this cancels the loop and everything it started.

        Raises:
            TypeError: the prompt is not a string.
            RuntimeError: no orchestrator, context or provider is mounted, or a prompt is already running.
        """
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be text, not {type(prompt).__name__}.")
        return await self._run_exclusively("execute", {"prompt": prompt}, kwargs)

    async def resume(self, **kwargs: Any) -> str:
        """Resume the last run of the conversation and return its answer.

        Raises:
            RuntimeError: as in `execute`; or the orchestrator cannot resume runs, or there is none to resume.
        """
        return await self._run_exclusively("resume", {}, kwargs)

    async def _run_exclusively(self, method: str, prompt: dict[str, str], options: dict[str, Any]) -> str:
        if self._run is not None:
            raise RuntimeError("This session is running; inject the message instead.")
        ended = asyncio.Event()
        self._run = asyncio.current_task(), ended
        try:
            await self.initialize()
            self.status.status = "running"
            with local_errors():
                answer = await self._orchestrate(method, prompt, options)
            self.status.status = "completed"
        except BaseException as e:
            cancelled = isinstance(e, asyncio.CancelledError) or self.coordinator.cancellation.is_cancelled
            self.status.status = "cancelled" if cancelled else "failed"
            self.status.last_error = {"type": type(e).__name__, "message": error_text(e)}
            raise
        finally:
            try:
                await self._finish_cancellation()
            finally:
                self._run = None
                ended.set()
        return answer

    async def _orchestrate(self, method: str, prompt: dict[str, str], options: dict[str, Any]) -> str:
        """Call a method of the orchestrator with the mounted context, providers, tools and hooks.

        Raises:
            RuntimeError: no orchestrator, context or provider is mounted, or the method is missing.
        """
        self._prompts += len(prompt)
        get = self.coordinator.get
        for point in ("orchestrator", "context", "providers"):
            if (module := get(point)) is None or module == {}:
                raise RuntimeError(f"Nothing is mounted at '{point}'. {self._mounting.reason_for_empty(point)}")
        run: Any = getattr(get("orchestrator"), method, None)
        if run is None:
            raise RuntimeError(f"The orchestrator of this session cannot {method} a run; call execute() instead.")
        contract = prompt | {point: get(point) for point in ("context", "providers", "tools", "hooks")}
        bound = _bind(run, contract, {"coordinator": self.coordinator, **options})
        answer: str = await run(*bound.args, **bound.kwargs)
        return answer

    async def cleanup(self) -> None:
        """End the session: emit `session:end`, then run the modules' clean-ups, last mounted first. Idempotent.

        Raises:
            RuntimeError: a prompt is running, or the current task is already cleaning up.
        """
        if self._run is not None:
            raise RuntimeError("A prompt is running in this session; cancel it before the clean-up.")
        async with self._lifecycle_lock:
            await self._end()

    async def _end(self) -> None:
        was_ready, self._lifecycle = self._lifecycle == "ready", "ended"
        self.status.ended_at = self.status.ended_at or datetime.now().astimezone()
        try:
            if was_ready:
                stats = {"prompts": self._prompts, "duration_s": round(time.monotonic() - self._started_at, 3)}
                payload = {"session_id": self.session_id, "status": self.status.status, "stats": stats}
                await announce(self.coordinator, events.SESSION_END, payload)
        finally:
            await self.coordinator.cleanup()

    async def __aenter__(self) -> Self:
        try:
            await self.initialize()
        except BaseException:
            await self.cleanup()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._run is not None:
            running, ended = self._run
            if running is None or running is asyncio.current_task():
                break
            running.cancel()
            await ended.wait()
        await self.cleanup()

    async def _finish_cancellation(self) -> None:
        token = self.coordinator.cancellation
        if not token.is_cancelled:
            return
        self.status.status = "cancelled"
        was_immediate = token.is_immediate
        token.reset()
        payload = {"was_immediate": was_immediate}
        try:
            await with_timeout(CANCEL_GRACE_S, announce(self.coordinator, events.CANCEL_COMPLETED, payload))
        except TimeoutError:
            log.warning("session.cancel_completed_timeout")
        finally:
            token.reset()  # a stop requested during the emit was for this run

    def _merge_configs(self, base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
        """Merge an agent's configuration into another, for a child session. See `plan.merge_configs`."""
        return merge_configs(base, overlay)


def _bind(method: Any, contract: dict[str, Any], options: dict[str, Any]) -> inspect.BoundArguments:
    """Bind arguments to the parameters of their names; other required parameters, and `*args`, get the contract's.

    A third-party loop may name only some. Options that it does not take are left out, with a warning.
    """
    signature, values = inspect.signature(method), options | contract
    parameters, bound = signature.parameters, inspect.BoundArguments(signature, OrderedDict())
    unnamed, takes_any = [name for name in contract if name not in parameters], False
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: values[key] for key in (*unnamed, *options) if key not in parameters}
            takes_any = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name], unnamed = tuple(values[key] for key in unnamed), []
        elif name in values:
            bound.arguments[name] = values[name]
        elif parameter.default is parameter.empty and unnamed:
            bound.arguments[name] = values[unnamed.pop(0)]
    if "prompt" in unnamed and not takes_any:
        raise TypeError(f"{method.__qualname__}() takes no prompt: name its parameters as in the contract.")
    bound.apply_defaults()  # `*args` come after parameters that have defaults
    if ignored := sorted(options.keys() - parameters.keys() - _EXPENDABLE) if not takes_any else ():
        log.warning("orchestrator.arguments_ignored", method=getattr(method, "__qualname__", ""), arguments=ignored)
    return bound


class _LifecycleLock:
    """Serializes initialization and clean-up; raises if a module requests one from within, which would deadlock."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None

    @property
    def is_held_by_another(self) -> bool:
        return self._holder is not None and self._holder is not asyncio.current_task()

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if self._holder is not None and self._holder is task:
            raise RuntimeError(
                "This session is being initialized or ended: a module cannot do that during the operation."
            )
        await self._lock.acquire()
        self._holder = task

    async def __aexit__(self, *_: object) -> None:
        self._holder = None
        self._lock.release()


class _Mounting:
    """Mounts a plan into a coordinator, once."""

    def __init__(self, plan: MountPlan, coordinator: ModuleCoordinator, loader: ModuleLoader) -> None:
        self._plan = plan
        self._coordinator = coordinator
        self._loader = loader
        self._without_module: list[ModuleSpec] = []
        self._skipped: list[tuple[ModuleSpec, str]] = []
        self._ready_callbacks: list[tuple[ModuleSpec, ReadyCallback]] = []

    async def mount(self) -> None:
        """Mount every module. Skip a provider, tool or hook that fails, and emit `module:load_failed` at the end.

        Raises:
            ModuleNotFoundError, ModuleLoadError: the orchestrator or the context cannot be mounted.
        """
        for spec in self._plan.required:
            await self._mount(spec)
        for spec in self._plan.optional:
            undo = self._coordinator.checkpoint()
            try:
                await self._mount(spec)
            except Exception as e:  # one module must not break the session
                log.warning("module.load_failed", kind=spec.point, module=spec.module, error=error_text(e))
                log.debug("module.load_failed_traceback", module=spec.module, exc_info=True)
                self._skipped.append((spec, error_text(e)))
                await undo()  # remove what it has already mounted
        for spec, error in self._skipped:
            failed = {"module_type": spec.point.removesuffix("s"), "module_id": spec.module, "error": error}
            await announce(self._coordinator, events.MODULE_LOAD_FAILED, failed)
        for spec, ready in self._ready_callbacks:
            with ErrorBoundary(log, "module.on_session_ready_failed", level="warning", module=spec.module) as boundary:
                await ready(self._coordinator)
            if boundary.error is not None:
                payload = {"module_id": spec.module, "error": error_text(boundary.error)}
                await announce(self._coordinator, events.MODULE_ON_SESSION_READY_FAILED, payload)

    def reason_for_empty(self, point: str) -> str:
        """Return a sentence that explains why no module is mounted at this point."""
        reasons = [f"{spec.module}: {error}" for spec, error in self._skipped if spec.point == point]
        reasons += [f"{spec.module} mounted nothing." for spec in self._without_module if spec.point == point]
        return " ".join(reasons) or "The mount plan names none."

    async def _mount(self, spec: ModuleSpec) -> None:
        before, held_before = self._mounted_at(spec.point), {id(each) for _, each in self._held()}
        with convert_exits():
            mount = await self._loader.load(spec.module, spec.config, spec.source)
            with self._renaming(spec):
                returned = await mount(self._coordinator)
        mounted = self._mounted_at(spec.point)
        if returned is not None and id(returned) not in mounted:
            self._keep(spec, returned, mounted_itself=mounted != before)
            mounted = self._mounted_at(spec.point)
        for point, module in self._held():
            if module is not None and id(module) not in held_before and (problem := protocol_problem(point, module)):
                raise ModuleLoadError(f"Module '{spec.module}' mounts {problem}.")
        if mounted == before:
            self._without_module.append(spec)
        if ready := getattr(mount, "on_session_ready", None):
            self._ready_callbacks.append((spec, ready))

    @contextmanager
    def _renaming(self, spec: ModuleSpec) -> Iterator[None]:
        """Give the module that is mounted in the context the name of the spec, if it has one."""
        if spec.instance_id is None:
            yield
            return
        held = self._coordinator.mount_points[spec.point]
        others = dict(held)
        held.clear()
        try:
            yield
        finally:
            new = list(held.values())
            held.clear()
            held.update(others)
        if new:
            held[spec.instance_id] = new[-1]

    def _held(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the mounted modules, with their mount points."""
        for point, held in self._coordinator.mount_points.items():
            for module in held.values() if isinstance(held, dict) else (held,):
                yield point, module

    def _mounted_at(self, point: str) -> list[int]:
        """Return the identities of the modules at a mount point."""
        mounted = self._coordinator.mount_points[point]
        return list(map(id, mounted.values())) if isinstance(mounted, dict) else [id(mounted)]

    def _keep(self, spec: ModuleSpec, returned: Any, *, mounted_itself: bool) -> None:
        """Keep the return value of `mount`: a clean-up, or the module, which is mounted unless it did so itself."""
        if spec.point in PROTOCOLS and protocol_problem(spec.point, returned) is None:
            if not mounted_itself:
                self._coordinator.mount(spec.point, returned, name=spec.instance_id)
        elif callable(returned):
            self._coordinator.register_cleanup(returned)
        else:
            log.warning("module.unexpected_return", module=spec.module, got=type(returned).__name__)
