"""Contain errors of third-party code: hooks, tools, modules, clean-ups, approval systems."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from types import TracebackType

    from pydantic import ValidationError


class EscapedError(Exception):
    """Called code raised a CancelledError or SystemExit that would have affected its caller."""


class ErrorBoundary:
    """Log an error of third-party code instead of raising it; `error` is then the error, otherwise None.

    A CancelledError without a cancellation of the current task, and SystemExit, count as errors. A cancellation of
    the current task passes through, and so do KeyboardInterrupt and GeneratorExit.

    Args:
        log: logger of the caller.
        event: name of the log event; `fields` are its fields.
    """

    # A class is several times cheaper than a generator, and every progress event enters one.
    __slots__ = ("_event", "_fields", "_level", "_log", "error")

    def __init__(self, log: Any, event: str, *, level: Literal["warning", "error"] = "error", **fields: Any) -> None:
        self._log = log
        self._event = event
        self._level = level
        self._fields = fields
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if error is None:
            return False
        self.error = _as_ordinary(error)
        if self.error is None:
            return False
        getattr(self._log, self._level)(self._event, exc_info=self.error, **self._fields)
        return True


class convert_exits:  # noqa: N801 - used like a function
    """Convert a CancelledError without a cancellation of the current task, and SystemExit, to an ordinary error.

    The usual clean-up `task.cancel(); await task` raises the first; a tool that calls `sys.exit` the second. A
    cancellation of the current task passes through.

    Raises:
        EscapedError: one of the two was raised.
    """

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, asyncio.CancelledError | SystemExit) and (escaped := _as_ordinary(error)) is not None:
            raise escaped from error


def _as_ordinary(error: BaseException) -> Exception | None:
    """Return an error of third-party code as an ordinary one; None if it belongs to the caller."""
    match error:
        case asyncio.CancelledError():
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return None
            escaped = EscapedError("It raised CancelledError, although its task was not cancelled.")
        case SystemExit():
            escaped = EscapedError(f"It tried to exit the process with code {error.code!r}.")
        case Exception():
            return error
        case _:
            return None
    escaped.__cause__ = error
    return escaped


def without_input(error: ValidationError) -> str:
    """Return what is invalid, without the values, which may be texts of the conversation."""
    problems = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems)


def error_text(error: BaseException) -> str:
    """Return the text of an error, or its class name if it has no text or `__str__` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - third-party errors may have a faulty `__str__`
        text = ""
    return text or type(error).__name__
