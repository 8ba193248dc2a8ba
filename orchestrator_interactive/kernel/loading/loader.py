"""Find a module by name and prepare it for mounting."""

from __future__ import annotations

import builtins
import difflib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.conversion import to_local_error
from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.kernel.error_boundary import convert_exits, error_text
from orchestrator_interactive.kernel.loading.location import ENTRY_POINT_GROUP, import_mount, locate, package_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import Coordinator

    MountFunction = Callable[..., Awaitable[Any]]
    ReadyCallback = Callable[[Coordinator], Awaitable[None]]
    Functions = tuple[MountFunction, ReadyCallback | None]  # of a module: mount and on_session_ready

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Mount:
    """A loaded module with its configuration: call it with a coordinator.

    `on_session_ready` is the module's function of that name, called after all modules are mounted.
    """

    function: MountFunction
    config: dict[str, Any]
    on_session_ready: ReadyCallback | None = None

    async def __call__(self, coordinator: Coordinator) -> Any:
        """Mount the module.

        Raises:
            ModuleLoadError: its `mount` is not async.
        """
        mounting: Any = self.function(coordinator, self.config)
        if not inspect.isawaitable(mounting):
            name = getattr(self.function, "__module__", "")
            raise ModuleLoadError(f"The mount() of '{name}' must be async: `async def mount(coordinator, config)`.")
        return await mounting


class ModuleLoader:
    """Load modules from the mounted `module-source-resolver`, else from entry points, else from `search_paths`.

    The resolver's ModuleNotFoundError is final. If it returns None, the others are tried.
    """

    def __init__(
        self,
        coordinator: Coordinator | None = None,
        search_paths: Sequence[Path | str] | Path | str | None = None,
    ) -> None:
        self.coordinator = coordinator
        folders = [search_paths] if isinstance(search_paths, str | Path) else search_paths or ()
        self._search_paths = [Path(folder) for folder in folders]

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Mount:
        """Return the module, ready to mount with this configuration; `profile_source` is the plan's `source`.

        Raises:
            ModuleNotFoundError: no such module; the message lists the places searched.
            ModuleLoadError: the module cannot be imported or has no `mount`.
        """
        if config is not None and not isinstance(config, _MAPPINGS):
            raise ModuleLoadError(f"Module '{module_id}': config must be a mapping, not {config!r}.")
        if not isinstance(module_id, str) or not module_id.strip():
            raise ModuleNotFoundError(f"module_id must be the name of a module, not {module_id!r}.")
        try:
            resolver = self.coordinator.get("module-source-resolver") if self.coordinator else None
        except ValueError:  # another kernel's coordinator without this mount point
            resolver = None
        path, tried = None, ""
        if resolver is not None:
            path = await _path_from(resolver, module_id, profile_source)
        elif profile_source is not None:
            tried = f"Nothing is mounted that could read its source {profile_source!r}. "
        found = _import_from(path, module_id) if path is not None else self._without_resolver(module_id, tried)
        if resolver is None and profile_source is not None:
            log.warning(
                "module.source_ignored",
                module=module_id,
                source=str(profile_source),
                what_to_do="mount a module-source-resolver before the session is initialized, or remove `source`",
            )
        return Mount(found[0], config or {}, found[1])

    def _without_resolver(self, module_id: str, tried: str) -> Functions:
        found = _installed(tuple(sys.path))
        if module_id not in found:  # it may have just been installed
            _installed.cache_clear()
            found = _installed(tuple(sys.path))
        if module_id in found:
            return _import_installed(module_id, found[module_id].value, tuple(sys.path))
        for folder in self._search_paths:
            for name in (f"amplifier-module-{module_id}", package_of(module_id)):
                if (folder / name).is_dir():
                    return _import_from(folder / name, module_id)
        close = difflib.get_close_matches(module_id, found, 1, _SIMILAR)
        tried = f"Did you mean '{close[0]}'? {tried}" if close else tried
        looked_in = "".join(f" Not in {folder} either." for folder in self._search_paths)
        raise ModuleNotFoundError(
            f"There is no module '{module_id}'. {tried}Installed modules: {', '.join(sorted(found)) or 'none'}."
            f"{looked_in} Check the name, or install the package that declares it in the entry point group "
            f"'{ENTRY_POINT_GROUP}'."
        )


_SIMILAR = 0.8  # all names of a kind begin alike
_MAPPINGS = (dict, Mapping)  # a dict is recognised several times faster than a Mapping


async def _path_from(resolver: Any, module_id: str, profile_source: Any) -> Path | None:
    """Return the path that a resolver returns for a module, if any; convert errors of either kernel to ours.

    Resolvers of the ecosystem that download modules have an `async_resolve`.
    """
    name = type(resolver).__name__
    try:
        with convert_exits():
            source = getattr(resolver, "async_resolve", resolver.resolve)(module_id, profile_source)
            source = await source if inspect.isawaitable(source) else source
            if source is None:
                return None
            if hasattr(source, "resolve"):
                return Path(source.resolve())
    except Exception as e:  # a resolver is third-party code
        error = to_local_error(e)
        if isinstance(error, ModuleNotFoundError | builtins.ModuleNotFoundError):
            raise ModuleNotFoundError(error_text(error)) from e
        raise ModuleLoadError(f"Module '{module_id}': {name} cannot resolve its location: {error_text(error)}") from e
    raise ModuleLoadError(f"Module '{module_id}': {name} returned {type(source).__name__}, not a ModuleSource.")


def _import_from(path: Path, module_id: str) -> Functions:
    """Import the module at a path: a project, a package, or a Python file."""
    try:
        mount = import_mount(locate(path, module_id))
    except (ModuleNotFoundError, ModuleLoadError) as e:
        raise ModuleLoadError(f"Module '{module_id}' cannot be imported: {e}") from e
    return mount, _ready_callback_of(mount)


# Sessions are made often, and what is installed does not change between them.


@lru_cache(maxsize=1)
def _installed(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return the declared modules by id. It reads a file of every installed package."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


@lru_cache(maxsize=128)
def _import_installed(module_id: str, value: str, _path: tuple[str, ...]) -> Functions:
    """Import the module of an entry point."""
    try:
        mount: MountFunction = EntryPoint(module_id, value, ENTRY_POINT_GROUP).load()
    except (SystemExit, Exception) as e:  # third-party code may raise anything
        raise ModuleLoadError(f"Module '{module_id}' ({value}) cannot be imported: {error_text(e)}") from e
    if not callable(mount):
        raise ModuleLoadError(
            f"Module '{module_id}': its entry point '{value}' is not a function; write 'package:mount'."
        )
    return mount, _ready_callback_of(mount)


def _ready_callback_of(mount: MountFunction) -> ReadyCallback | None:
    """Return `on_session_ready` of the mount function's module or of its top-level package."""
    name = str(getattr(mount, "__module__", ""))
    homes = (sys.modules.get(name), sys.modules.get(name.partition(".")[0]))
    found = next((ready for home in homes if (ready := getattr(home, "on_session_ready", None))), None)
    if found is not None and not inspect.iscoroutinefunction(found):
        log.warning("module.on_session_ready_is_not_async", module=name)
        return None
    return found
