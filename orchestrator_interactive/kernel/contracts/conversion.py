"""Convert values between amplifier_core's types and ours. The field names are the same; the classes differ."""

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

_LOCAL: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for module in (messages, models)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__module__ == module.__name__
}
# Cache per class: `to_local` runs on every hook result.
_LOCAL_KINDS: dict[type, type[BaseModel] | None] = {}


def amplifier_core() -> ModuleType | None:
    """Return the package if it is already imported."""
    return sys.modules.get(PACKAGE)


def to_local(value: Any) -> Any:
    """Convert amplifier_core's value (result, message, request, response) to our type; return others unchanged."""
    kind = _local_kind(type(value))
    return value if kind is None else kind.model_validate(value.model_dump())


def is_foreign(value: Any) -> bool:
    return _local_kind(type(value)) is not None


def foreign(value: Any) -> Any:
    """Convert our value, or each item of a list, to amplifier_core's type; return others unchanged."""
    if isinstance(value, list):
        return [foreign(item) for item in value]
    kind = _foreign_kind(type(value))
    return value if kind is None else kind.model_validate(value.model_dump())


def to_local_error(error: Exception) -> Exception:
    """Convert amplifier_core's error to our class of the same name; return others unchanged."""
    for kind in type(error).__mro__:
        local_kind = getattr(errors, kind.__name__, None)
        if _is_of(kind) and local_kind is not None:
            return _converted_error(error, local_kind)
    return error


@contextmanager
def local_errors() -> Iterator[None]:
    """Re-raise amplifier_core's errors as our classes."""
    try:
        yield
    except Exception as e:
        converted = to_local_error(e)
        if converted is e:
            raise
        raise converted from e


def foreign_error(error: errors.LLMError) -> Exception:
    """Convert our error to amplifier_core's class of the same name."""
    kind = _foreign_kind(type(error))
    return error if kind is None else _converted_error(error, kind)


def _converted_error(error: Exception, kind: type[Exception]) -> Exception:
    attributes = ("provider", "model", "status_code", "retryable", "retry_after")
    return kind(str(error), **{name: getattr(error, name) for name in attributes if hasattr(error, name)})


def _local_kind(kind: type) -> type[BaseModel] | None:
    """Return our class for amplifier_core's class or a subclass of it."""
    if kind not in _LOCAL_KINDS:
        _LOCAL_KINDS[kind] = next(
            (_LOCAL[base.__name__] for base in kind.__mro__ if _is_of(base) and base.__name__ in _LOCAL), None
        )
    return _LOCAL_KINDS[kind]


def _foreign_kind(kind: type) -> Any:
    """Return amplifier_core's class for ours or a subclass of it."""
    names = (base.__name__ for base in kind.__mro__ if base.__module__.startswith(KERNEL))
    found = (getattr(amplifier_core(), name, None) for name in names)
    return next((kind for kind in found if kind is not None), None)


def _is_of(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == PACKAGE
