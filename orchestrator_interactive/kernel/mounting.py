"""Mount the modules of a plan, handle their return values, and skip optional modules that fail."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.kernel.contracts.protocols import ContextManager, Orchestrator, Provider, Tool
from orchestrator_interactive.kernel.error_boundary import contained, told

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.loading.loader import ModuleLoader, Ready
    from orchestrator_interactive.kernel.plan import ModuleSpec, MountPlan

log = structlog.get_logger(__name__)

_CONTRACTS: dict[str, type] = {
    "orchestrator": Orchestrator,
    "context": ContextManager,
    "providers": Provider,
    "tools": Tool,
}


class Mounting:
    """Mounts a plan into a coordinator, once."""

    def __init__(self, coordinator: ModuleCoordinator, loader: ModuleLoader) -> None:
        self._coordinator = coordinator
        self._loader = loader
        self._mounted_nothing: list[ModuleSpec] = []
        self._skipped: list[tuple[ModuleSpec, Exception]] = []
        self._ready: list[tuple[ModuleSpec, Ready]] = []

    async def mount(self, plan: MountPlan) -> None:
        """Mount every module. Skip a provider, tool or hook that fails, and emit `module:load_failed` at the end.

        Raises:
            ModuleNotFoundError, ModuleLoadError: the orchestrator or the context cannot be mounted.
        """
        for spec in plan.required:
            await self._mount(spec)
            self._check_contract(spec)
        for spec in plan.optional:
            await self._mount_or_skip(spec)
        for spec, error in self._skipped:
            await self._report_skipped(spec, error)
        for spec, ready in self._ready:
            await self._call_ready(spec, ready)

    def why_nothing_at(self, point: str) -> str:
        """Return a sentence that explains why no module is mounted at this point."""
        reasons = [f"{spec.module}: {told(error)}" for spec, error in self._skipped if spec.point == point]
        reasons += [f"{spec.module} mounted nothing." for spec in self._mounted_nothing if spec.point == point]
        return " ".join(reasons) or "The mount plan names none."

    async def _mount_or_skip(self, spec: ModuleSpec) -> None:
        undo = self._coordinator.checkpoint()
        try:
            await self._mount(spec)
        except Exception as e:  # one module must not break the session
            log.warning("module.load_failed", kind=spec.point, module=spec.module, error=told(e))
            log.debug("module.load_failed_where", module=spec.module, exc_info=True)
            self._skipped.append((spec, e))
            await undo()  # remove what it has already mounted

    async def _mount(self, spec: ModuleSpec) -> None:
        with contained():
            mount = await self._loader.load(spec.module, spec.config, spec.source)
            before = self._mounted_at(spec.point)
            returned = await mount(self._coordinator)
        mounted = self._mounted_at(spec.point)
        if returned is not None and id(returned) not in mounted:
            self._keep(spec, returned, mounted_itself=mounted != before)
        if self._mounted_at(spec.point) == before:
            self._mounted_nothing.append(spec)
        if ready := getattr(mount, "on_session_ready", None):
            self._ready.append((spec, ready))

    def _mounted_at(self, point: str) -> list[int]:
        """Return the identities of the modules at a mount point."""
        mounted = self._coordinator.get(point)
        return [id(module) for module in mounted.values()] if isinstance(mounted, dict) else [id(mounted)]

    def _keep(self, spec: ModuleSpec, returned: Any, *, mounted_itself: bool) -> None:
        """Handle the return value of `mount`: a clean-up, or the module, which is mounted unless it did so itself."""
        if inspect.isroutine(returned):  # a protocol check of a function is slow
            self._coordinator.register_cleanup(returned)
            return
        contract = _CONTRACTS.get(spec.point)
        if contract is not None and isinstance(returned, contract):
            if not mounted_itself:
                self._coordinator.mount(spec.point, returned)
        elif callable(returned):
            self._coordinator.register_cleanup(returned)
        else:
            log.warning("module.returned_nonsense", module=spec.module, got=type(returned).__name__)

    def _check_contract(self, spec: ModuleSpec) -> None:
        mounted, contract = self._coordinator.get(spec.point), _CONTRACTS[spec.point]
        if mounted is not None and not isinstance(mounted, contract):
            raise ModuleLoadError(
                f"Module '{spec.module}' mounts a {type(mounted).__name__} as {spec.point}, which lacks methods of the "
                f"contract (see `{contract.__name__}` in kernel/interfaces.py)."
            )

    async def _report_skipped(self, spec: ModuleSpec, error: Exception) -> None:
        payload = {"module_type": spec.point.removesuffix("s"), "module_id": spec.module, "error": told(error)}
        await self._coordinator.hooks.emit(events.MODULE_LOAD_FAILED, payload)

    async def _call_ready(self, spec: ModuleSpec, ready: Ready) -> None:
        try:
            with contained():
                await ready(self._coordinator)
        except Exception as e:  # one module must not break the session
            log.warning("module.on_session_ready_failed", module=spec.module, exc_info=True)
            payload = {"module_id": spec.module, "error": told(e)}
            await self._coordinator.hooks.emit(events.MODULE_ON_SESSION_READY_FAILED, payload)
