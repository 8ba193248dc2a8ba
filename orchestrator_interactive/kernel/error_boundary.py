"""At the borders to other people's code: hooks, tools, modules, clean-ups, whoever asks people."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class EscapedError(Exception):
    """Code that was called raised what would have reached further than its own failure."""


@contextmanager
def contained() -> Iterator[None]:
    """Make ordinary errors of what reaches too far: a cancellation that nobody asked for, the end of the process.

    The commonest clean-up, `task.cancel(); await task`, raises the first; a tool that calls `sys.exit` the second.
    Being cancelled oneself passes through.

    Raises:
        Escaped: one of the two was raised.
    """
    try:
        yield
    except asyncio.CancelledError as e:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise EscapedError("It was cancelled, though nobody had cancelled it from here.") from e
    except SystemExit as e:
        raise EscapedError(f"It tried to end the process, with {e.code!r}.") from e


def told(error: BaseException) -> str:
    """The text of an error, or its kind where it has none or cannot tell it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of other people's may have a faulty `__str__`
        text = ""
    return text or type(error).__name__
