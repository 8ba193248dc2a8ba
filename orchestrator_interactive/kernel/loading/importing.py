"""Importing a module from where it lies, rather than from where one of its name is installed."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.kernel.error_boundary import told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import ModuleType

    from orchestrator_interactive.kernel.loading.location import ModuleLocation

    MountFunction = Callable[..., Awaitable[Any]]


def import_mount(location: ModuleLocation) -> MountFunction:
    """The mount function of the module at a location.

    Raises:
        ModuleLoadError: it cannot be imported, or has no such function; the message says why.
    """
    mount: MountFunction | None = getattr(import_module(location), location.attribute, None)
    if not callable(mount):
        raise ModuleLoadError(f"{location.file} has no function {location.attribute}().")
    return mount


def import_module(location: ModuleLocation) -> ModuleType:
    """The Python module at a location.

    Its folder leads `sys.path` while it is imported, and stays at the end of it if that worked.

    Raises:
        ModuleLoadError: it raises while it is imported, or a module of its name from elsewhere is in the way.
    """
    top = location.name.partition(".")[0]
    _refuse_another(top, location)
    try:
        with _leading(str(location.root)):
            module = importlib.import_module(location.name)
    except (Exception, SystemExit) as e:  # foreign code: whatever it raises, it cannot be imported
        raise ModuleLoadError(f"{_named(e)}{_where(e, location)}") from e
    _refuse_another(location.name, location)
    return module


@contextmanager
def _leading(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
    if folder not in sys.path:
        sys.path.append(folder)  # what is imported later, inside functions, is found as well


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
            f"A module called '{name}' is there already ({file or 'part of Python'}), so the one in {location.root} "
            "cannot be imported. Give it another name."
        )


def _named(error: BaseException) -> str:
    said, kind = " ".join(told(error).split()), type(error).__name__
    return kind if said == kind else f"{kind}: {said}"


def _where(error: BaseException, location: ModuleLocation) -> str:
    line = line_in(error, location)
    return f" ({line})" if line else ""


def line_in(error: BaseException, location: ModuleLocation) -> str:
    """The last line of the module's own code that an error came by; blank where it came by none."""
    own = ""
    trace = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(location.file.parent):
            own = f"{file.name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return own
