"""Import a module from its location, not from an installed package of the same name."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.kernel.error_boundary import error_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import ModuleType

    from orchestrator_interactive.kernel.loading.location import ModuleLocation

    MountFunction = Callable[..., Awaitable[Any]]


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
    top = location.name.partition(".")[0]
    _refuse_another(top, location)
    try:
        with _leading(str(location.root)):
            module = importlib.import_module(location.name)
    except (Exception, SystemExit) as e:  # third-party code may raise anything
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


def _named(error: BaseException) -> str:
    text, kind = " ".join(error_text(error).split()), type(error).__name__
    return kind if text == kind else f"{kind}: {text}"


def _where(error: BaseException, location: ModuleLocation) -> str:
    line = line_in(error, location)
    return f" ({line})" if line else ""


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
