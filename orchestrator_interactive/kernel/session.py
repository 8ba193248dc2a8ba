"""A session: one mount plan, its modules, and the prompts it runs."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import structlog

from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.errors import ModuleLoadError
from orchestrator_interactive.kernel.loader import ModuleLoader
from orchestrator_interactive.kernel.models import SessionStatus

if TYPE_CHECKING:
    from types import TracebackType

    from orchestrator_interactive.kernel.interfaces import ApprovalSystem, DisplaySystem

log = structlog.get_logger(__name__)


class _ModuleSpec(NamedTuple):
    module: str
    config: dict[str, Any]
    source: Any


class AmplifierSession:
    """Everything an agent needs for one conversation.

    Args:
        config: the mount plan: `session.orchestrator`, `session.context`, `providers`, `tools`, `hooks`.
        parent_id: the session this one was forked from.
        is_resumed: whether it continues an earlier one; decides between `session:start` and `session:resume`.

    Raises:
        ValueError: the mount plan names no orchestrator or no context.
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
        for required in ("orchestrator", "context"):
            if not (config.get("session") or {}).get(required):
                raise ValueError(f"The configuration must specify session.{required}.")
        self.config = config
        self.session_id = session_id or str(uuid.uuid4())
        self.parent_id = parent_id
        self.status = SessionStatus(session_id=self.session_id)
        self._is_resumed = is_resumed
        self._initialized = False
        self._initializing = asyncio.Lock()
        self._running = False
        self._left_out: list[str] = []
        self.coordinator = ModuleCoordinator(self, approval_system, display_system)
        self.coordinator.hooks.set_default_fields(session_id=self.session_id, parent_id=parent_id)
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
            plan = self.config["session"]
            for required in ("orchestrator", "context"):
                await self._mount(_spec(plan[required], self.config.get(required) or {}))
            for kind in ("providers", "tools", "hooks"):
                for entry in self.config.get(kind) or ():
                    await self._mount_optional(kind, entry)
            self._initialized = True
            await self._emit_start()

    async def execute(self, prompt: str, **kwargs: Any) -> str:
        """Run a prompt; keyword arguments go to the orchestrator. Errors keep their type.

        Cancelling the task that awaits this cancels the loop and everything it started.

        Raises:
            RuntimeError: no orchestrator, context or provider is mounted, or a prompt is running already.
        """
        if self._running:
            raise RuntimeError("This session is running; inject the message instead.")
        self._running = True
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
                why = " ".join(self._left_out) or "The mount plan names none."
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
        if self._initialized:
            payload = {"session_id": self.session_id, "status": self.status.status}
            await self.coordinator.hooks.emit(events.SESSION_END, payload)
        await self.coordinator.cleanup()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup()

    async def _mount(self, spec: _ModuleSpec) -> None:
        mount = await self.loader.load(spec.module, spec.config, spec.source)
        result = await mount(self.coordinator)
        if callable(result) and not self._is_mounted(result):
            self.coordinator.register_cleanup(result)

    async def _mount_optional(self, kind: str, entry: Any) -> None:
        try:
            await self._mount(_spec(entry, {}))
        except Exception as e:  # one module may not take the session down
            module = entry.get("module") if isinstance(entry, dict) else entry
            log.debug("module.load_failed", kind=kind, module=module, exc_info=True)
            self._left_out.append(f"{module}: {e}")
            payload = {"module_type": kind.removesuffix("s"), "module_id": module, "error": str(e)}
            await self.coordinator.hooks.emit(events.MODULE_LOAD_FAILED, payload)

    def _is_mounted(self, candidate: Any) -> bool:
        singles = [self.coordinator.get(point) for point in ("orchestrator", "context")]
        multis = [m for point in ("providers", "tools") for m in self.coordinator.get(point).values()]
        return any(candidate is module for module in (*singles, *multis))

    async def _emit_start(self) -> None:
        payload = {"session_id": self.session_id, "parent_id": self.parent_id, "config": self.config}
        if self.parent_id is not None:
            await self.coordinator.hooks.emit(events.SESSION_FORK, payload)
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
        """Lay one configuration over another, dictionary by dictionary; lists and scalars are replaced."""
        merged = dict(base)
        for key, value in overlay.items():
            both = isinstance(merged.get(key), dict) and isinstance(value, dict)
            merged[key] = self._merge_configs(merged[key], value) if both else value
        return merged


def _spec(entry: str | dict[str, Any], fallback: dict[str, Any]) -> _ModuleSpec:
    if isinstance(entry, str):
        return _ModuleSpec(entry, fallback.get("config", {}), None)
    if not entry.get("module"):
        raise ModuleLoadError(f"An entry of the mount plan names no module: {entry}.")
    return _ModuleSpec(entry["module"], entry.get("config", fallback.get("config", {})), entry.get("source"))
