"""Finding a module by name and getting it ready to mount."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.kernel.error_boundary import contained, told
from orchestrator_interactive.kernel.interop import to_local_error
from orchestrator_interactive.kernel.loading.importing import import_mount
from orchestrator_interactive.kernel.loading.location import ENTRY_POINT_GROUP, locate, package_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

    MountFunction = Callable[..., Awaitable[Any]]
    Ready = Callable[[ModuleCoordinator], Awaitable[None]]

log = structlog.get_logger(__name__)


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
        """Mount it.

        Raises:
            ModuleLoadError: its `mount` is not async.
        """
        mounting: Any = self.function(coordinator, self.config)
        if not inspect.isawaitable(mounting):
            name = getattr(self.function, "__module__", "")
            raise ModuleLoadError(f"The mount() of '{name}' must be async: `async def mount(coordinator, config)`.")
        return await mounting


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
        self,
        coordinator: ModuleCoordinator | None = None,
        search_paths: Sequence[Path | str] | Path | str | None = None,
    ) -> None:
        self.coordinator = coordinator
        folders = [search_paths] if isinstance(search_paths, str | Path) else search_paths or ()
        self._search_paths = [Path(folder) for folder in folders]

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Mount:
        """Return the module, ready to mount with this configuration; `profile_source` is the plan's `source`.

        Raises:
            ModuleNotFoundError: no such module; the message says where it was looked for.
            ModuleLoadError: found, but it cannot be imported or has no `mount`.
        """
        if config is not None and not isinstance(config, Mapping):
            raise ModuleLoadError(f"Module '{module_id}': config must be a mapping, not {config!r}.")
        if not isinstance(module_id, str) or not module_id.strip():
            raise ModuleNotFoundError(f"module_id must be the name of a module, not {module_id!r}.")
        resolver = self._resolver()
        if resolver is None:
            unread = (
                "" if profile_source is None else f"Nothing is mounted that could read its source {profile_source!r}. "
            )
            return Mount.of(self._direct(module_id, unread), config)
        try:
            path = await _path_from(resolver, module_id, profile_source)
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
                    return import_from(folder / name, module_id)
        looked_in = "".join(f" Not in {folder} either." for folder in self._search_paths)
        raise ModuleNotFoundError(
            f"There is no module '{module_id}'. {tried}Installed modules: {', '.join(sorted(found)) or 'none'}."
            f"{looked_in} Check the name, or install the package that declares it in the entry point group "
            f"'{ENTRY_POINT_GROUP}'."
        )


async def _path_from(resolver: Any, module_id: str, profile_source: Any) -> Path:
    """Where a resolver says that a module lies; its errors are ours, whichever kernel's it raises.

    Resolvers of the ecosystem that fetch a module have an `async_resolve`.
    """
    name = type(resolver).__name__
    try:
        with contained():
            source = getattr(resolver, "async_resolve", resolver.resolve)(module_id, profile_source)
            source = await source if inspect.isawaitable(source) else source
            if hasattr(source, "resolve"):
                return Path(source.resolve())
    except Exception as e:  # a resolver is foreign code
        error = to_local_error(e)
        if isinstance(error, ModuleNotFoundError | builtins.ModuleNotFoundError):
            raise ModuleNotFoundError(told(error)) from e
        raise ModuleLoadError(f"Module '{module_id}': {name} cannot tell where it lies: {told(error)}") from e
    raise ModuleLoadError(f"Module '{module_id}': {name} returned {type(source).__name__}, no ModuleSource.")


@lru_cache(maxsize=1)
def _installed(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The declared modules by id. It reads a file of every installed package, so it is kept for as long as the path."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def import_from(path: Path, module_id: str) -> MountFunction:
    """The `mount` of the module that lies at a path: a project, a package, or a Python file.

    Raises:
        ModuleLoadError: there is none, it cannot be imported, or something else of its name is loaded already.
    """
    try:
        return import_mount(locate(path, module_id))
    except (ModuleNotFoundError, ModuleLoadError) as e:
        raise ModuleLoadError(f"Module '{module_id}' cannot be imported: {e}") from e


def _loaded(entry: Any, module_id: str) -> MountFunction:
    try:
        mount: MountFunction = entry.load()
    except (SystemExit, Exception) as e:  # a module is foreign code: whatever it raises, it cannot be imported
        raise ModuleLoadError(f"Module '{module_id}' ({entry.value}) cannot be imported: {told(e)}") from e
    if not callable(mount):
        raise ModuleLoadError(
            f"Module '{module_id}': its entry point '{entry.value}' leads to no function; write 'package:mount'."
        )
    return mount
