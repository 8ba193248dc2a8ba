"""Rules for modules of every type: import, mount, second mount, clean-up."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.kernel.loading.importing import import_module
from orchestrator_interactive.kernel.loading.location import ENTRY_POINT_GROUP, ModuleLocation
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import UNREQUESTED_CANCEL, Hung, Raised, Returned, rule
from orchestrator_interactive.validation.sandbox import called

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType as PythonModule

    from orchestrator_interactive.validation.runner import Ending, Problems, ValidationRule
    from orchestrator_interactive.validation.sandbox import Mounted, Ready, SandboxSession

_MOUNT = "Entry Point Pattern, mount() Function"
_SIGNATURE = "async def mount(coordinator, config)"


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported module."""

    location: ModuleLocation
    module: PythonModule

    @property
    def mount(self) -> Any:
        return getattr(self.module, self.location.attribute, None)

    @property
    def on_session_ready(self) -> Any:
        return getattr(self.module, "on_session_ready", None)

    @property
    def ready(self) -> Ready | None:
        """`on_session_ready`, if a session can call it."""
        ready: Ready | None = self.on_session_ready
        return ready if inspect.iscoroutinefunction(ready) and not _unless_it_takes(ready, "coordinator") else None


@rule(
    Check(
        rule="it can be imported",
        section=_MOUNT,
        fix="Correct the module; install its dependencies next to amplifier-slack.",
        part="structure",
    )
)
def importable(location: ModuleLocation) -> Problems:
    try:
        import_module(location)
    except ModuleLoadError as e:
        return [f"Importing {location.name} fails: {e}."]
    return []


@rule(
    Check(
        rule="it has a function mount()",
        section=_MOUNT,
        fix=f"Write `{_SIGNATURE}` at the top level of the module.",
        part="structure",
    )
)
def has_mount(imported: Imported) -> Problems:
    name, file = imported.location.attribute, imported.location.file
    return [] if callable(imported.mount) else [f"There is no function {name}() in {file.name}."]


@rule(
    Check(
        rule="mount() is async",
        section=_MOUNT,
        fix=f"Write `{_SIGNATURE}`.",
        part="structure",
    )
)
def mount_is_async(imported: Imported) -> Problems:
    return [] if inspect.iscoroutinefunction(imported.mount) else ["It is a plain function."]


@rule(
    Check(
        rule="mount() takes (coordinator, config)",
        section=_MOUNT,
        fix=f"Write `{_SIGNATURE}`.",
        part="structure",
    )
)
def mount_takes_both(imported: Imported) -> Problems:
    return _unless_it_takes(imported.mount, "coordinator", "config")


@rule(
    Check(
        rule="its project declares it as an entry point",
        section="Entry Point Pattern, pyproject.toml",
        fix=f'Add under [project.entry-points."{ENTRY_POINT_GROUP}"] a line such as `my-module = "my_package:mount"`.',
        part="structure",
    )
)
def is_declared(location: ModuleLocation) -> Problems:
    if location.entry_point is not None:
        return []
    return [f"{location.project} has no entry point in the group '{ENTRY_POINT_GROUP}' that leads to {location.name}."]


@rule(
    Check(
        rule="on_session_ready(coordinator) is async",
        section=_MOUNT,
        fix="Write `async def on_session_ready(coordinator)`.",
        part="structure",
    )
)
def ready_is_async(imported: Imported) -> Problems:
    ready = imported.on_session_ready
    if not inspect.iscoroutinefunction(ready):
        return ["It is no async function."]
    return _unless_it_takes(ready, "coordinator")


@rule(
    Check(
        rule="mount() works with this configuration",
        section=_MOUNT,
        fix="Correct mount(), or pass the module's configuration with --config.",
        part="structure",
    )
)
def mounts(ended: Ending) -> Problems:
    match ended:
        case Raised(error=error):
            raise error
        case Hung(limit_s=limit_s):
            return [f"mount() does not end within {limit_s:g} seconds."]
        case Returned():
            return []
        case _:
            return [f"mount() {UNREQUESTED_CANCEL}."]


@rule(
    Check(
        rule="on_session_ready() runs",
        section=_MOUNT,
        fix="Catch errors there; other modules that it needs may be missing.",
        part="structure",
    )
)
async def ready_runs(both: tuple[Imported, SandboxSession]) -> Problems:
    imported, sandboxes = both
    async with sandboxes.unready().open() as sandbox:
        await imported.on_session_ready(sandbox.coordinator)
    return []


@rule(
    Check(
        rule="two sessions can mount it at the same time",
        section=_MOUNT,
        fix="Create mounted objects inside mount(), and keep no session state in module variables.",
        part="structure",
    )
)
async def mounts_twice(sandboxes: SandboxSession) -> Problems:
    async with sandboxes.open() as one, sandboxes.open() as other:
        first = [(mounted.module_type, mounted.name) for mounted in one.mounted]
        second = [(mounted.module_type, mounted.name) for mounted in other.mounted]
        if first != second or one.types != other.types:
            return [f"The first session gets {_listed(first)}, the second {_listed(second)}."]
        mine = {id(mounted.instance): mounted for mounted in one.mounted}
        shared = [mine[id(mounted.instance)] for mounted in other.mounted if id(mounted.instance) in mine]
    return [f"Both sessions get the same {mounted.module_type}." for mounted in shared if _has_a_session(mounted)]


@rule(
    Check(
        rule="its clean-up runs",
        section=_MOUNT,
        fix="Let the clean-up take no arguments, and let it work even if the module has done nothing yet.",
        part="structure",
    )
)
async def cleans_up(sandboxes: SandboxSession) -> Problems:
    async with sandboxes.open() as sandbox:
        for clean_up in sandbox.cleanups():
            await called(clean_up)
    return []


BEFORE_MOUNTING: tuple[ValidationRule[Imported], ...] = (has_mount, mount_is_async, mount_takes_both)
AFTER_MOUNTING: tuple[ValidationRule[SandboxSession], ...] = (cleans_up, mounts_twice)


def _unless_it_takes(function: Any, *names: str) -> Problems:
    try:
        inspect.signature(function).bind(*names)
    except TypeError as e:
        return [f"It cannot be called with ({', '.join(names)}): {e}."]
    return []


def _has_a_session(mounted: Mounted) -> bool:
    """Return whether instances of this type always hold session state."""
    return mounted.module_type in {"orchestrator", "context"}


def _listed(mounted: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"the {module_type} '{name}'" for module_type, name in mounted) or "nothing"
