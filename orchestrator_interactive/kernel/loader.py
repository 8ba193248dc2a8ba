"""Finding a module by name and getting it ready to mount."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.kernel.interop import own_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

    MountFunction = Callable[..., Awaitable[Any]]
    Ready = Callable[[ModuleCoordinator], Awaitable[None]]

log = structlog.get_logger(__name__)

ENTRY_POINT_GROUP = "amplifier.modules"


@dataclass(frozen=True, slots=True)
class Mount:
    """A module that was found, with its configuration: call it with a coordinator.

    `on_session_ready` is the module's function of that name, for when all modules are mounted.
    """

    function: MountFunction
    config: dict[str, Any]
    on_session_ready: Ready | None = None

    @classmethod
    def of(cls, function: MountFunction, config: dict[str, Any] | None) -> Mount:
        return cls(function, config or {}, _ready_of(function))

    async def __call__(self, coordinator: ModuleCoordinator) -> Any:
        return await self.function(coordinator, self.config)


def _ready_of(mount: MountFunction) -> Ready | None:
    """The `on_session_ready` beside a mount function, or in the package that it is imported into."""
    name = str(getattr(mount, "__module__", ""))
    homes = (sys.modules.get(name), sys.modules.get(name.partition(".")[0]))
    found = next((ready for home in homes if (ready := getattr(home, "on_session_ready", None))), None)
    if found is not None and not inspect.iscoroutinefunction(found):
        log.warning("module.on_session_ready_is_not_async", module=name)
        return None
    return found


class ModuleLoader:
    """Loads modules: from the mounted `module-source-resolver`, else from entry points, else from `search_paths`.

    A resolver that does not know a module leaves it to the others, unless the plan says where the module comes from.
    """

    def __init__(
        self, coordinator: ModuleCoordinator | None = None, search_paths: Sequence[Path] | None = None
    ) -> None:
        self.coordinator = coordinator
        self._search_paths = search_paths or ()

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Mount:
        """Return the module, ready to mount with this configuration; `profile_source` is the plan's `source`.

        Raises:
            ModuleNotFoundError: no such module; the message says where it was looked for.
            ModuleLoadError: found, but it cannot be imported or has no `mount`.
        """
        resolver = self._resolver()
        if resolver is None:
            return Mount.of(self._direct(module_id), config)
        try:
            path = _path_from(resolver, module_id, profile_source)
        except ModuleNotFoundError as e:
            if profile_source is not None:
                raise
            return Mount.of(self._direct(module_id, f"{e} "), config)
        return Mount.of(import_from(path, module_id), config)

    def _resolver(self) -> Any:
        try:
            return self.coordinator.get("module-source-resolver") if self.coordinator else None
        except ValueError:  # a coordinator of others, which knows no such mount point
            return None

    def _direct(self, module_id: str, tried: str = "") -> MountFunction:
        found = _installed(tuple(sys.path))
        if module_id not in found:  # it may have been installed a moment ago
            _installed.cache_clear()
            found = _installed(tuple(sys.path))
        if module_id in found:
            return _loaded(found[module_id], module_id)
        for folder in self._search_paths:
            for name in (f"amplifier-module-{module_id}", package_of(module_id)):
                if (folder / name).is_dir():
                    return import_from(folder / name if "-" in name else folder, module_id)
        looked_in = "".join(f" Not in {folder} either." for folder in self._search_paths)
        raise ModuleNotFoundError(
            f"There is no module '{module_id}'. {tried}Installed modules: {', '.join(sorted(found)) or 'none'}."
            f"{looked_in} Check the name, or install the package that declares it in the entry point group "
            f"'{ENTRY_POINT_GROUP}'."
        )


def _path_from(resolver: Any, module_id: str, profile_source: Any) -> Path:
    """Where a resolver says that a module lies; its errors are ours, whichever kernel's it raises."""
    try:
        source = resolver.resolve(module_id, profile_source)
        if hasattr(source, "resolve"):
            return Path(source.resolve())
    except OSError as e:
        raise ModuleLoadError(f"Module '{module_id}' cannot be read from its source: {e}") from e
    except Exception as e:
        told = own_error(e)
        if told is e:
            raise
        raise told from e
    raise ModuleLoadError(f"Module '{module_id}': {type(resolver).__name__} returned {source!r}, no ModuleSource.")


@lru_cache(maxsize=1)
def _installed(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The declared modules by id. It reads a file of every installed package, so it is kept for as long as the path."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def package_of(module_id: str) -> str:
    """The package that holds a module, by the ecosystem's convention."""
    return "amplifier_module_" + module_id.replace("-", "_")


def import_from(path: Path, module_id: str) -> MountFunction:
    """The `mount` of the package for this module in a folder, which may be the package itself.

    Raises:
        ModuleLoadError: there is none, it cannot be imported, or something else of its name is loaded already.
    """
    path = Path(path)
    is_package = (path / "__init__.py").exists()
    root, name = (path.parent, path.name) if is_package else (path, package_of(module_id))
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        module = importlib.import_module(name)
    except Exception as e:  # a module is foreign code: whatever it raises, it cannot be imported
        raise ModuleLoadError(f"Module '{module_id}': '{name}' cannot be imported from {root}: {e}") from e
    loaded_from = Path(getattr(module, "__file__", None) or "/").resolve()
    if not loaded_from.is_relative_to(root.resolve()):
        raise ModuleLoadError(
            f"Module '{module_id}': a package '{name}' is loaded from {loaded_from.parent} already, so the one in "
            f"{root} cannot be. Give it another name, or use one of the two."
        )
    mount: MountFunction | None = getattr(module, "mount", None)
    if mount is None:
        raise ModuleLoadError(f"Module '{module_id}': '{name}' in {root} has no mount() function.")
    return mount


def _loaded(entry: Any, module_id: str) -> MountFunction:
    try:
        mount: MountFunction = entry.load()
    except Exception as e:  # a module is foreign code: whatever it raises, it cannot be imported
        raise ModuleLoadError(f"Module '{module_id}' ({entry.value}) cannot be imported: {e}") from e
    return mount
