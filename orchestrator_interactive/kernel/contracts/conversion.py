"""Values of amplifier_core as ours, and ours as its. The field names are the same; the classes are not."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from orchestrator_interactive.kernel.contracts import errors, messages, models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PACKAGE = "amplifier_core"
KERNEL = "orchestrator_interactive.kernel."

_OWN: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for module in (messages, models)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__module__ == module.__name__
}
# Every hook's answer comes by here: what a class is, is looked up once.
_SEEN: dict[type, type[BaseModel] | None] = {}


def amplifier_core() -> ModuleType | None:
    """The package, once something has loaded it."""
    return sys.modules.get(PACKAGE)


def own(value: Any) -> Any:
    """Ours for a value of amplifier_core (a result, a message, a request, an answer); anything else as it is."""
    kind = _own_kind(type(value))
    return value if kind is None else kind.model_validate(value.model_dump())


def is_foreign(value: Any) -> bool:
    return _own_kind(type(value)) is not None


def foreign(value: Any) -> Any:
    """amplifier_core's for a value of ours; a list, item by item; anything else as it is."""
    if isinstance(value, list):
        return [foreign(item) for item in value]
    kind = _foreign_kind(type(value))
    return value if kind is None else kind.model_validate(value.model_dump())


def own_error(error: Exception) -> Exception:
    """The error of our family for one of amplifier_core's; any other error as it is."""
    for kind in type(error).__mro__:
        own_kind = getattr(errors, kind.__name__, None)
        if _is_of(kind) and own_kind is not None:
            return _restated(error, own_kind)
    return error


@contextmanager
def own_errors() -> Iterator[None]:
    """Errors of amplifier_core come out of this as those of our family."""
    try:
        yield
    except Exception as e:
        told = own_error(e)
        if told is e:
            raise
        raise told from e


def foreign_error(error: errors.LLMError) -> Exception:
    """amplifier_core's error for one of our family."""
    kind = _foreign_kind(type(error))
    return error if kind is None else _restated(error, kind)


def _restated(error: Exception, kind: type[Exception]) -> Exception:
    told = ("provider", "model", "status_code", "retryable", "retry_after")
    return kind(str(error), **{name: getattr(error, name) for name in told if hasattr(error, name)})


def _own_kind(kind: type) -> type[BaseModel] | None:
    """Our class for one of amplifier_core's, or for one that a module derived from it."""
    if kind not in _SEEN:
        _SEEN[kind] = next(
            (_OWN[base.__name__] for base in kind.__mro__ if _is_of(base) and base.__name__ in _OWN), None
        )
    return _SEEN[kind]


def _foreign_kind(kind: type) -> Any:
    """amplifier_core's class for one of ours, or for one that a module derived from it."""
    names = (base.__name__ for base in kind.__mro__ if base.__module__.startswith(KERNEL))
    found = (getattr(amplifier_core(), name, None) for name in names)
    return next((kind for kind in found if kind is not None), None)


def _is_of(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == PACKAGE
