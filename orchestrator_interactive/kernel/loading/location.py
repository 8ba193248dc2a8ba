"""Locate a module in a project, a package or a single file, and import it from there."""

from __future__ import annotations

import importlib
import sys
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError, ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.kernel.error_boundary import error_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from types import ModuleType

    MountFunction = Callable[..., Awaitable[Any]]

T = TypeVar("T")

ENTRY_POINT_GROUP = "amplifier.modules"
_PACKAGE_PREFIX = "amplifier_module_"
_PROJECT_FILE = "pyproject.toml"
# Packages that projects have next to their module.
_NO_MODULES = ("tests", "test", "docs", "examples")


class EntryPoint(NamedTuple):
    """An entry of the group `amplifier.modules` in a project file: `module_id = "module:attribute"`."""

    module_id: str
    module: str
    attribute: str


@dataclass(frozen=True, slots=True)
class ModuleLocation:
    """Location of an importable module.

    Args:
        root: the folder from which Python imports the module.
        name: dotted name relative to `root`.
        file: the file of that name.
        project: the project file, if there is one.
        entry_point: the entry point by which the project declares the module, if it does.
    """

    root: Path
    name: str
    file: Path
    project: Path | None = None
    entry_point: EntryPoint | None = None

    @property
    def attribute(self) -> str:
        """Name of the mount function."""
        return self.entry_point.attribute if self.entry_point else "mount"

    @property
    def module_id(self) -> str:
        """Name of the module in a mount plan: the declared name, or one derived from its package."""
        if self.entry_point is not None:
            return self.entry_point.module_id
        return self.name.rpartition(".")[2].removeprefix(_PACKAGE_PREFIX).replace("_", "-")


def package_of(module_id: str) -> str:
    """Return the package name of a module by the ecosystem's convention."""
    return _PACKAGE_PREFIX + module_id.replace("-", "_")


def locate(path: Path, module_id: str | None = None) -> ModuleLocation:
    """Find the module at a path: a project folder, a package folder, or a Python file.

    If a project contains several modules, `module_id` selects one.

    Raises:
        ModuleNotFoundError: the path does not exist, or contains no module or several; the message gives the remedy.
    """
    found = path.expanduser().resolve()
    if found.is_dir():
        return _in_folder(found, module_id)
    if found.suffix == ".py" and found.exists():
        return _of_file(found)
    if found.exists():
        raise ModuleNotFoundError(
            f"{path} is not a Python file. Give the folder of a module's project, its package, or its file."
        )
    remedy = "Check the path."
    for installed in entry_points(group=ENTRY_POINT_GROUP, name=str(path)):
        remedy = f"That is the name of an installed module, not a path. Give the path of '{installed.module}'."
    raise ModuleNotFoundError(f"There is nothing at {path}. {remedy}")


def _in_folder(folder: Path, module_id: str | None) -> ModuleLocation:
    project = folder / _PROJECT_FILE
    if project.is_file() and (declared := _declared_in(project)):
        wanted = [entry for entry in declared if entry.module_id == module_id] or declared
        return _declared(project, _only_one(wanted, folder, [f"{each.module_id} ({each.module})" for each in wanted]))
    if (folder / "__init__.py").is_file():
        return _of_file(folder / "__init__.py")
    packages = sorted(found for root in _roots(folder) for found in root.glob("*/__init__.py"))
    packages = [each for each in packages if each.parent.name.startswith(_PACKAGE_PREFIX)] or [
        each for each in packages if each.parent.name.isidentifier() and each.parent.name not in _NO_MODULES
    ]
    if not packages:
        raise ModuleNotFoundError(
            f"There is no module in {folder}. A module is a project whose {_PROJECT_FILE} declares an entry point in "
            f"the group '{ENTRY_POINT_GROUP}', a package (a folder with an __init__.py), or a Python file."
        )
    named = [package for package in packages if module_id and package.parent.name == package_of(module_id)] or packages
    return _of_file(_only_one(named, folder, [str(package.parent) for package in named]))


def _only_one(found: list[T], folder: Path, names: Iterable[str]) -> T:
    if len(found) > 1:
        raise ModuleNotFoundError(
            f"There are several modules in {folder}: {', '.join(names)}. Give the package or the file of one of them."
        )
    return found[0]


def _declared(project: Path, entry: EntryPoint) -> ModuleLocation:
    roots = _roots(project.parent)
    for root in roots:
        place = root.joinpath(*entry.module.split("."))
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return ModuleLocation(root, entry.module, file, project, entry)
    raise ModuleNotFoundError(
        f"{project} declares {entry.module_id} = '{entry.module}:{entry.attribute}', and there is no '{entry.module}' "
        f"in {' and '.join(map(str, roots))}. Correct the entry point, or give the path of the package."
    )


def _roots(folder: Path) -> list[Path]:
    """Return the import roots of a project: its folder (flat layout) and `src`."""
    return [root for root in (folder, folder / "src") if root.is_dir()]


def _of_file(file: Path) -> ModuleLocation:
    root = file.parent
    parts = [] if file.name == "__init__.py" else [file.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    name = ".".join(parts)
    project = (root.parent if root.name == "src" else root) / _PROJECT_FILE
    if not project.is_file():
        return ModuleLocation(root, name, file)
    declared = _declared_in(project)
    inside = [entry for entry in declared if entry.module.startswith(f"{name}.")]
    # For a package, also the only entry point inside it.
    fallback = inside[0] if len(inside) == 1 else None
    entry = next((entry for entry in declared if entry.module == name), fallback)
    if entry is not None and entry.module != name:
        return _declared(project, entry)
    return ModuleLocation(root, name, file, project, entry)


def _declared_in(project: Path) -> list[EntryPoint]:
    """Return the modules that a project file declares.

    Raises:
        ModuleNotFoundError: the file cannot be read.
    """
    try:
        content = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ModuleNotFoundError(f"{project} cannot be read: {e}. Correct it, or give the path of the package.") from e
    declared: Any = _table(content, "project", "entry-points") or _table(content, "tool", "poetry", "plugins")
    found = []
    for module_id, value in declared.items():
        if isinstance(value, str):
            module, _, attribute = (part.strip() for part in value.partition(":"))
            found.append(EntryPoint(module_id, module, attribute or "mount"))
    return found


def _table(content: Any, *keys: str) -> dict[str, Any]:
    for key in (*keys, ENTRY_POINT_GROUP):
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def import_mount(location: ModuleLocation) -> MountFunction:
    """Return the mount function of the module at a location.

    Raises:
        ModuleLoadError: the module cannot be imported or has no such function; the message gives the reason.
    """
    mount: MountFunction | None = getattr(import_module(location), location.attribute, None)
    if not callable(mount):
        raise ModuleLoadError(f"{location.file} has no function {location.attribute}().")
    return mount


def import_module(location: ModuleLocation) -> ModuleType:
    """Import the Python module at a location.

    Its folder is first in `sys.path` during the import, and last after a successful import.

    Raises:
        ModuleLoadError: the import raises, or another module of this name is already loaded.
    """
    _refuse_another(location.name.partition(".")[0], location)
    try:
        with _first_in_path(str(location.root)):
            module = importlib.import_module(location.name)
    except (Exception, SystemExit) as e:  # third-party code may raise anything
        text, kind = " ".join(error_text(e).split()), type(e).__name__
        where = line_in(e, location)
        raise ModuleLoadError((kind if text == kind else f"{kind}: {text}") + (f" ({where})" if where else "")) from e
    _refuse_another(location.name, location)
    return module


@contextmanager
def _first_in_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
    if folder not in sys.path:
        sys.path.append(folder)  # for later imports inside functions


def _refuse_another(name: str, location: ModuleLocation) -> None:
    loaded = sys.modules.get(name)
    if loaded is None:
        return
    file = getattr(loaded, "__file__", None)
    places = [file] if file else list(getattr(loaded, "__path__", ()))
    here = location.root.joinpath(*name.split("."))
    of_this_name = {here, here / "__init__.py", here.with_suffix(".py")}
    if of_this_name.isdisjoint(Path(place).resolve() for place in places):
        raise ModuleLoadError(
            f"A module called '{name}' is already loaded ({file or 'part of Python'}), so the one in {location.root} "
            "cannot be imported. Give it another name."
        )


def line_in(error: BaseException, location: ModuleLocation) -> str:
    """Return the last line of the module's own code in an error's traceback; blank if there is none."""
    own = ""
    trace = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(location.file.parent):
            own = f"{file.name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return own
