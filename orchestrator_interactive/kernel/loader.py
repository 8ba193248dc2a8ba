"""Finding a module by name and getting it ready to mount."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

    Mount = Callable[[ModuleCoordinator], Awaitable[Any]]

ENTRY_POINT_GROUP = "amplifier.modules"


class ModuleLoader:
    """Loads modules through the mounted `module-source-resolver`, or from entry points where there is none."""

    def __init__(self, coordinator: ModuleCoordinator | None = None) -> None:
        self.coordinator = coordinator

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Mount:
        """Return the function that mounts the module with this configuration.

        Raises:
            ModuleNotFoundError: no such module; the message says where it was looked for.
            ModuleLoadError: found, but it cannot be imported or has no `mount`.
        """
        resolver = self.coordinator.get("module-source-resolver") if self.coordinator else None
        if resolver is None:
            mount = find_entry_point(module_id)
        else:
            mount = _import_from(resolver.resolve(module_id, profile_source).resolve(), module_id)

        async def mount_with_config(coordinator: ModuleCoordinator) -> Any:
            return await mount(coordinator, config or {})

        return mount_with_config


def find_entry_point(module_id: str) -> Callable[..., Awaitable[Any]]:
    """The `mount` function that an installed package declares for a module id.

    Raises:
        ModuleNotFoundError: no installed package declares it.
        ModuleLoadError: the package that declares it cannot be imported.
    """
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if module_id not in found:
        raise ModuleNotFoundError(
            f"There is no module '{module_id}'. Installed modules: {', '.join(sorted(found)) or 'none'}. "
            f"Check the name, or install the package that declares it in the entry point group '{ENTRY_POINT_GROUP}'."
        )
    try:
        mount: Callable[..., Awaitable[Any]] = found[module_id].load()
    except (ImportError, AttributeError) as e:
        raise ModuleLoadError(f"Module '{module_id}' ({found[module_id].value}) cannot be imported: {e}") from e
    return mount


def _import_from(path: Path, module_id: str) -> Callable[..., Awaitable[Any]]:
    name = "amplifier_module_" + module_id.replace("-", "_")
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))
    try:
        module = importlib.import_module(name)
    except ImportError as e:
        raise ModuleLoadError(f"Module '{module_id}': '{name}' cannot be imported from {path}: {e}") from e
    mount: Callable[..., Awaitable[Any]] | None = getattr(module, "mount", None)
    if mount is None:
        raise ModuleLoadError(f"Module '{module_id}': '{name}' in {path} has no mount() function.")
    return mount
