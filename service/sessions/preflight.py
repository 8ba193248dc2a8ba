"""Check that a mount plan can be mounted, before the first run needs it."""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions.stores import MemoryStore
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.loading.loader import ModuleLoader
from service.sessions.mount_plan import new_session

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.loading.loader import Mount

_SINGLE = ("orchestrator", "context")
_MULTI = ("providers", "tools")
_CONFIGURED_POINT = "configured point"


async def find_problems(plan: dict[str, Any]) -> list[str]:
    """Mount and unmount a plan; return one sentence for each problem."""
    problems: list[str] = []

    async def note(_event: str, data: dict[str, Any]) -> HookResult:
        problems.append(_sentence(data["module_id"], data["error"]))
        return HookResult()

    session = new_session(plan, MemoryStore())
    session.loader = watched = _WatchedLoader(session.coordinator)
    session.coordinator.hooks.register(events.MODULE_LOAD_FAILED, note)
    try:
        await session.initialize()
    except Exception as e:  # noqa: BLE001 - a tool call's border: a module may raise anything
        return [_sentence(watched.latest, str(e) or type(e).__name__)]
    finally:
        await session.cleanup()
    problems += [*watched.misplaced(plan), *watched.replaced]
    if not session.coordinator.get("providers") and not problems:
        return ["No provider could be mounted: set ANTHROPIC_API_KEY, or name another provider."]
    return problems


def _sentence(module: str, error: str) -> str:
    problem = " ".join(error.split()) or "cannot be mounted; it gives no reason."
    return problem if module in problem else f"{module}: {problem}"


class _WatchedLoader(ModuleLoader):
    """Records at which points each module mounts something, and which providers replace one another."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        super().__init__(coordinator)
        self.latest = ""
        self.replaced: list[str] = []
        self._points: defaultdict[str, set[str]] = defaultdict(set)

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Mount:
        self.latest = module_id
        found = await super().load(module_id, config, profile_source)

        async def watched(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Any:
            before, providers = _mounted(coordinator), dict(coordinator.get("providers"))
            result = await replace(found, config=config)(coordinator)
            new = {point for point, _ in _mounted(coordinator) - before}
            if not new and result is not None and not inspect.isroutine(result):
                new = {_CONFIGURED_POINT}  # the session mounts a returned module at the configured point
            self._points[module_id] |= new
            self.replaced += [
                f"providers: the module '{module_id}' replaces '{name}', which has the same name. Give them different "
                "names to use one as the fallback of the other."
                for name, provider in providers.items()
                if coordinator.get("providers", name) is not provider
            ]
            return result

        return replace(found, function=watched)

    def misplaced(self, plan: dict[str, Any]) -> list[str]:
        """Return one sentence for each module under the key of another module type."""
        placed = [(point, plan["session"][point]["module"]) for point in _SINGLE]
        placed += [(point, entry["module"]) for point in (*_MULTI, "hooks") for entry in plan[point]]
        return [
            f"{point}: the module '{module}' {_wrong(point, self._points[module])}"
            for point, module in placed
            if module in self._points and _is_misplaced(point, self._points[module])
        ]


def _is_misplaced(point: str, points: set[str]) -> bool:
    if point == "hooks":  # hooks may register their handlers later, when the session is ready
        return bool(points) and point not in points
    # A provider without an API key mounts nothing; the session uses the next one.
    return points.isdisjoint({point, _CONFIGURED_POINT}) and not (point == "providers" and not points)


def _wrong(point: str, points: set[str]) -> str:
    if not points:
        return "mounts nothing; check its `config`."
    problem = "registers no handler" if point == "hooks" else f"mounts no {point.removesuffix('s')}"
    return f"{problem}; it is under the wrong key."


def _mounted(coordinator: ModuleCoordinator) -> set[tuple[str, int]]:
    """Return the mounted modules and handlers as (mount point, identity)."""
    single = {(point, id(module)) for point in _SINGLE if (module := coordinator.get(point)) is not None}
    handlers = {("hooks", hash((event, *names))) for event, names in coordinator.hooks.list_handlers().items()}
    return single | handlers | {(point, id(module)) for point in _MULTI for module in coordinator.get(point).values()}
