"""Locate a module in a project, a package or a single file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import ModuleNotFoundError  # noqa: A004 - the contract's name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENTRY_POINT_GROUP = "amplifier.modules"
PACKAGE_PREFIX = "amplifier_module_"
_PROJECT_FILE = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry of the group `amplifier.modules`: `module_id = "module:attribute"`."""

    module_id: str
    module: str
    attribute: str = "mount"

    @classmethod
    def parse(cls, module_id: str, value: str) -> EntryPoint:
        module, _, attribute = (part.strip() for part in value.partition(":"))
        return cls(module_id, module, attribute or "mount")


@dataclass(frozen=True, slots=True)
class ModuleLocation:
    """Location of an importable module.

    Args:
        path: the path that was searched.
        root: the folder from which Python imports the module.
        name: dotted name relative to `root`.
        file: the file of that name.
        attribute: name of the mount function.
        project: the project file, if there is one.
        entry_point: the entry point by which the project declares the module, if it does.
    """

    path: Path
    root: Path
    name: str
    file: Path
    attribute: str = "mount"
    project: Path | None = None
    entry_point: EntryPoint | None = None

    @property
    def module_id(self) -> str:
        """Name of the module in a mount plan: the declared name, or one derived from its package."""
        if self.entry_point is not None:
            return self.entry_point.module_id
        return self.name.rpartition(".")[2].removeprefix(PACKAGE_PREFIX).replace("_", "-")


def package_of(module_id: str) -> str:
    """Return the package name of a module by the ecosystem's convention."""
    return PACKAGE_PREFIX + module_id.replace("-", "_")


def locate(path: Path, module_id: str | None = None) -> ModuleLocation:
    """Find the module at a path: a project folder, a package folder, or a Python file.

    If a project contains several modules, `module_id` selects one.

    Raises:
        ModuleNotFoundError: the path does not exist, or contains no module or several; the message gives the remedy.
    """
    found = path.expanduser().resolve()
    if found.is_dir():
        return _in_folder(found, path, module_id)
    if not found.exists():
        raise ModuleNotFoundError(f"There is nothing at {path}. {_unless_installed(path)}")
    if found.suffix != ".py":
        raise ModuleNotFoundError(
            f"{path} is not a Python file. Give the folder of a module's project, its package, or its file."
        )
    return _of_file(found, path)


def _unless_installed(path: Path) -> str:
    installed = next(iter(entry_points(group=ENTRY_POINT_GROUP, name=str(path))), None)
    if installed is None:
        return "Check the path."
    return f"That is the name of an installed module, not a path. Give the path of '{installed.module}'."


def _in_folder(folder: Path, asked: Path, module_id: str | None) -> ModuleLocation:
    if (folder / _PROJECT_FILE).is_file() and (declared := declared_in(folder / _PROJECT_FILE)):
        wanted = tuple(entry for entry in declared if entry.module_id == module_id)
        return _declared(folder, _only_one(wanted or declared, asked), asked)
    if (folder / "__init__.py").is_file():
        return _of_file(folder / "__init__.py", asked)
    packages = sorted(
        candidate for root in _import_roots(folder) for candidate in root.glob(f"{PACKAGE_PREFIX}*/__init__.py")
    )
    if not packages:
        raise ModuleNotFoundError(
            f"There is no module in {folder}. A module is a project whose {_PROJECT_FILE} declares an entry point in "
            f"the group '{ENTRY_POINT_GROUP}', a package (a folder with an __init__.py), or a Python file."
        )
    packages = [
        package for package in packages if module_id and package.parent.name == package_of(module_id)
    ] or packages
    if len(packages) > 1:
        raise ModuleNotFoundError(_several((str(package.parent) for package in packages), asked))
    return _of_file(packages[0], asked)


def _only_one(declared: tuple[EntryPoint, ...], asked: Path) -> EntryPoint:
    if len(declared) > 1:
        raise ModuleNotFoundError(_several((f"{entry.module_id} ({entry.module})" for entry in declared), asked))
    return declared[0]


def _several(names: Iterable[str], asked: Path) -> str:
    return f"There are several modules in {asked}: {', '.join(names)}. Give the package or the file of one of them."


def _declared(folder: Path, entry: EntryPoint, asked: Path) -> ModuleLocation:
    relative = Path(*entry.module.split("."))
    for root in _import_roots(folder):
        for file in (root / relative / "__init__.py", root / relative.with_suffix(".py")):
            if file.is_file():
                return ModuleLocation(asked, root, entry.module, file, entry.attribute, folder / _PROJECT_FILE, entry)
    looked_in = " and ".join(str(root) for root in _import_roots(folder))
    raise ModuleNotFoundError(
        f"{folder / _PROJECT_FILE} declares {entry.module_id} = '{entry.module}:{entry.attribute}', and there is no "
        f"'{entry.module}' in {looked_in}. Correct the entry point, or give the path of the package."
    )


def _import_roots(folder: Path) -> tuple[Path, ...]:
    """Return the import roots of a project: its folder (flat layout) and `src`."""
    return tuple(root for root in (folder, folder / "src") if root.is_dir())


def _of_file(file: Path, asked: Path) -> ModuleLocation:
    package = file.parent
    parts = [] if file.name == "__init__.py" else [file.stem]
    while (package / "__init__.py").is_file():
        parts.insert(0, package.name)
        package = package.parent
    name = ".".join(parts)
    project = _project_of(package)
    entry = _entry_of(name, declared_in(project)) if project else None
    if entry is not None and entry.module != name:
        return _declared(project.parent if project else package, entry, asked)
    return ModuleLocation(asked, package, name, file, entry.attribute if entry else "mount", project, entry)


def _project_of(root: Path) -> Path | None:
    folder = root.parent if root.name == "src" else root
    project = folder / _PROJECT_FILE
    return project if project.is_file() else None


def _entry_of(name: str, declared: tuple[EntryPoint, ...]) -> EntryPoint | None:
    """Return the entry point of a module; for a package, also the only entry point inside it."""
    exact = [entry for entry in declared if entry.module == name]
    inside = [entry for entry in declared if entry.module.startswith(f"{name}.")]
    return exact[0] if exact else inside[0] if len(inside) == 1 else None


def declared_in(project: Path) -> tuple[EntryPoint, ...]:
    """Return the modules that a project file declares.

    Raises:
        ModuleNotFoundError: the file cannot be read.
    """
    try:
        content = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ModuleNotFoundError(f"{project} cannot be read: {e}. Correct it, or give the path of the package.") from e
    declared = _table(content, "project", "entry-points", ENTRY_POINT_GROUP)
    declared = declared or _table(content, "tool", "poetry", "plugins", ENTRY_POINT_GROUP)
    return tuple(EntryPoint.parse(name, value) for name, value in declared.items() if isinstance(value, str))


def _table(content: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        content = content.get(key, {})
        if not isinstance(content, dict):
            return {}
    return content
