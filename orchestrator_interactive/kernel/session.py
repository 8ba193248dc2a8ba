"""A session: one mount plan, its modules, and the prompts it runs."""

from __future__ import annotations

import asyncio
import inspect
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

import structlog

from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.errors import ModuleLoadError
from orchestrator_interactive.kernel.interfaces import ContextManager, Orchestrator, Provider, Tool
from orchestrator_interactive.kernel.loader import ModuleLoader
from orchestrator_interactive.kernel.models import SessionStatus
from orchestrator_interactive.kernel.plan import MountPlan, merged

if TYPE_CHECKING:
    from types import TracebackType

    from orchestrator_interactive.kernel.interfaces import ApprovalSystem, DisplaySystem
    from orchestrator_interactive.kernel.loader import Ready
    from orchestrator_interactive.kernel.plan import ModuleSpec

log = structlog.get_logger(__name__)


_CONTRACTS: dict[str, type] = {
    "orchestrator": Orchestrator,
    "context": ContextManager,
    "providers": Provider,
    "tools": Tool,
}


class AmplifierSession:
    """Everything an agent needs for one conversation.

    Args:
        config: the mount plan: `session.orchestrator`, `session.context`, `providers`, `tools`, `hooks`; besides, in
            `session`, `injection_budget_per_turn` (tokens), `injection_size_limit` (bytes), `hook_timeout_s`.
        parent_id: the session this one was forked from.
        is_resumed: whether it continues an earlier one; decides between `session:start` and `session:resume`.

    Raises:
        ValueError: the mount plan names no orchestrator or no context, or has a part of the wrong form.
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
        plan = MountPlan.read(config)
        self.config = config
        self.session_id = session_id or str(uuid.uuid4())
        self.parent_id = parent_id
        self.status = SessionStatus(session_id=self.session_id)
        self._is_resumed = is_resumed
        self._initialized = False
        self._initializing = asyncio.Lock()
        self._running = False
        self._prompts = 0
        self._begun_at = time.monotonic()
        self._left_out: list[tuple[ModuleSpec, Exception]] = []
        self._ready: list[tuple[str, Ready]] = []
        self.coordinator = ModuleCoordinator(self, approval_system, display_system)
        self.coordinator.hooks.set_default_fields(session_id=self.session_id, parent_id=parent_id)
        if plan.hook_timeout_s is not None:
            self.coordinator.hooks.timeout_s = plan.hook_timeout_s
        self.loader = loader or ModuleLoader(self.coordinator)

    async def initialize(self) -> None:
        """Mount the plan's modules.

        A provider, tool or hook that fails is left out; `module:load_failed` tells of it.

        Raises:
            ModuleNotFoundError, ModuleLoadError: the orchestrator or the context cannot be had.
        """
        async with self._initializing:
            if self._initialized:
                return
            plan = MountPlan.read(self.config)
            self.coordinator.register_contributor("observability.events", "kernel", lambda: list(events.ALL_EVENTS))
            for spec in plan.required:
                await self._mount(spec)
                self._check_contract(spec)
            for spec in plan.optional:
                await self._mount_or_leave_out(spec)
            await self._tell()
            self._initialized = True
            await self._emit_start()

    async def execute(self, prompt: str, **kwargs: Any) -> str:
        """Run a prompt; keyword arguments go to the orchestrator. Errors keep their type.

        Cancelling the task that awaits this cancels the loop and everything it started.

        Raises:
            TypeError: the prompt is no text.
            RuntimeError: no orchestrator, context or provider is mounted, or a prompt is running already.
        """
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be text, not {type(prompt).__name__}.")
        if self._running:
            raise RuntimeError("This session is running; inject the message instead.")
        self._running = True
        self._prompts += 1
        try:
            await self.initialize()
            self.status.status = "running"
            answer = await self._orchestrate(prompt, kwargs)
        except BaseException as e:
            cancelled = isinstance(e, asyncio.CancelledError) or self.coordinator.cancellation.is_cancelled
            self.status.status = "cancelled" if cancelled else "failed"
            self.status.last_error = {"type": type(e).__name__, "message": str(e)}
            raise
        finally:
            self._running = False
            await self._finish_cancellation()
        if self.status.status == "running":
            self.status.status = "completed"
        return answer

    async def _orchestrate(self, prompt: str, kwargs: dict[str, Any]) -> str:
        mounted = {point: self.coordinator.get(point) for point in ("orchestrator", "context", "providers")}
        for point, module in mounted.items():
            if not module:
                why = " ".join(f"{spec.module}: {e}" for spec, e in self._left_out) or "The mount plan names none."
                raise RuntimeError(f"Nothing is mounted at '{point}'. {why}")
        answer: str = await mounted["orchestrator"].execute(
            prompt,
            mounted["context"],
            mounted["providers"],
            self.coordinator.get("tools"),
            self.coordinator.hooks,
            coordinator=self.coordinator,
            **kwargs,
        )
        return answer

    async def cleanup(self) -> None:
        """End the session: `session:end`, then the modules' clean-ups, last mounted first."""
        was_initialized, self._initialized = self._initialized, False
        try:
            if was_initialized:
                stats = {"prompts": self._prompts, "duration_s": round(time.monotonic() - self._begun_at, 3)}
                payload = {"session_id": self.session_id, "status": self.status.status, "stats": stats}
                await self.coordinator.hooks.emit(events.SESSION_END, payload)
        finally:
            await self.coordinator.cleanup()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup()

    async def _mount(self, spec: ModuleSpec) -> None:
        mount = await self.loader.load(spec.module, spec.config, spec.source)
        before = self._mounted_at(spec.point)
        returned = await mount(self.coordinator)
        mounted = self._mounted_at(spec.point)
        if returned is not None and id(returned) not in mounted:
            self._keep(spec, returned, mounted_itself=mounted != before)
        if ready := getattr(mount, "on_session_ready", None):
            self._ready.append((spec.module, ready))

    def _check_contract(self, spec: ModuleSpec) -> None:
        mounted = self.coordinator.get(spec.point)
        if mounted is not None and not isinstance(mounted, _CONTRACTS[spec.point]):
            raise ModuleLoadError(
                f"Module '{spec.module}' mounts a {type(mounted).__name__} as {spec.point}, which lacks methods of the "
                f"contract (see `{_CONTRACTS[spec.point].__name__}` in kernel/interfaces.py)."
            )

    def _keep(self, spec: ModuleSpec, returned: Any, *, mounted_itself: bool) -> None:
        """What `mount` returned is its clean-up, or the module, to be mounted if it has not done so."""
        if inspect.isroutine(returned):  # asking a function whether it is a module takes longer than all the rest
            self.coordinator.register_cleanup(returned)
            return
        contract = _CONTRACTS.get(spec.point)
        if contract is not None and isinstance(returned, contract):
            if not mounted_itself:
                self.coordinator.mount(spec.point, returned)
        elif callable(returned):
            self.coordinator.register_cleanup(returned)
        else:
            log.warning("module.returned_nonsense", module=spec.module, got=type(returned).__name__)

    def _mounted_at(self, point: str) -> list[int]:
        """The identities of what is mounted there."""
        mounted = self.coordinator.get(point)
        return [id(module) for module in mounted.values()] if isinstance(mounted, dict) else [id(mounted)]

    async def _mount_or_leave_out(self, spec: ModuleSpec) -> None:
        try:
            await self._mount(spec)
        except Exception as e:  # one module may not take the session down
            log.debug("module.load_failed", kind=spec.point, module=spec.module, exc_info=True)
            self._left_out.append((spec, e))

    async def _tell(self) -> None:
        """Tell the modules that all are mounted, and whoever listens which are not."""
        emit = self.coordinator.hooks.emit
        for spec, e in self._left_out:
            kind, error = spec.point.removesuffix("s"), str(e) or type(e).__name__
            await emit(events.MODULE_LOAD_FAILED, {"module_type": kind, "module_id": spec.module, "error": error})
        for module, ready in self._ready:
            try:
                await ready(self.coordinator)
            except Exception as e:  # one module may not take the session down
                log.warning("module.on_session_ready_failed", module=module, exc_info=True)
                await emit(events.MODULE_ON_SESSION_READY_FAILED, {"module_id": module, "error": str(e)})

    async def _emit_start(self) -> None:
        payload = {"session_id": self.session_id, "parent_id": self.parent_id, "config": self.config}
        if self.parent_id is not None:
            await self.coordinator.hooks.emit(events.SESSION_FORK, {**payload, "parent": self.parent_id})
        name = events.SESSION_RESUME if self._is_resumed else events.SESSION_START
        await self.coordinator.hooks.emit(name, payload)

    async def _finish_cancellation(self) -> None:
        token = self.coordinator.cancellation
        if not token.is_cancelled:
            return
        self.status.status = "cancelled"
        was_immediate = token.is_immediate
        token.reset()
        await self.coordinator.hooks.emit(events.CANCEL_COMPLETED, {"was_immediate": was_immediate})

    def _merge_configs(self, base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
        """Lay an agent's configuration over another, for a child session. See `plan.merged`."""
        return merged(base, overlay)
