"""How a tool says how far it is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_LONGEST = 200


def report_progress(text: str) -> None:
    """Say how far the tool is: people read it in the status, the model does not.

    One line of at most 200 characters; blank text is nothing. It works from the tool's own tasks and from
    `run_blocking`. Outside of a call that somebody watches, in a test or under another kernel, it does nothing.
    """
    if (reporter := _reporter.get()) is not None and (line := " ".join(text.split())):
        reporter.tell(line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…")


def reporting(callback: Callable[[str], object]) -> AbstractContextManager[None]:
    """Let `callback` have each line that the code within reports, on the event loop that this is entered on.

    What a task or a thread reports that outlives the block goes nowhere.
    """
    return _Reporter(callback)


class _Reporter:
    __slots__ = ("_callback", "_loop", "_outer", "_thread")

    def __init__(self, callback: Callable[[str], object]) -> None:
        self._callback: Callable[[str], object] | None = callback

    def __enter__(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._outer = _reporter.get()
        _reporter.set(self)

    def __exit__(self, *_: object) -> None:
        self._callback = None
        if _reporter.get() is self:  # not so where a task that was never finished is cleared away
            _reporter.set(self._outer)

    def tell(self, line: str) -> None:
        if threading.get_ident() == self._thread:
            self._hand_over(line)
        elif self._callback is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._hand_over, line)

    def _hand_over(self, line: str) -> None:
        if self._callback is not None:
            self._callback(line)


_reporter: ContextVar[_Reporter | None] = ContextVar("reporter", default=None)
