"""Contain errors of third-party code: hooks, tools, modules, clean-ups, approval systems."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class EscapedError(Exception):
    """Called code raised a CancelledError or SystemExit that would have affected its caller."""


@contextmanager
def contained() -> Iterator[None]:
    """Convert a CancelledError without a cancellation of the current task, and SystemExit, to an ordinary error.

    The usual clean-up `task.cancel(); await task` raises the first; a tool that calls `sys.exit` the second. A
    cancellation of the current task passes through.

    Raises:
        EscapedError: one of the two was raised.
    """
    try:
        yield
    except asyncio.CancelledError as e:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise EscapedError("It raised CancelledError, although its task was not cancelled.") from e
    except SystemExit as e:
        raise EscapedError(f"It tried to exit the process with code {e.code!r}.") from e


def told(error: BaseException) -> str:
    """Return the text of an error, or its class name if it has no text or `__str__` fails."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - third-party errors may have a faulty `__str__`
        text = ""
    return text or type(error).__name__
