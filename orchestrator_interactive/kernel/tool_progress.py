"""Progress reports of tools."""

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
    """Report the progress of a tool call. Users see it in the status message; the model does not.

    The text becomes one line of at most 200 characters; blank text is ignored. Works in the tool's own tasks and in
    `run_blocking`. Does nothing without an enclosing `reporting`, such as in a test or under another kernel.
    """
    if (reporter := _reporter.get()) is not None and (line := " ".join(text.split())):
        reporter.emit(line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…")


def reporting(callback: Callable[[str], object]) -> AbstractContextManager[None]:
    """Pass each progress line of the enclosed code to `callback`, on the event loop of the caller.

    Reports of tasks and threads that outlive the block are dropped.
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
        if _reporter.get() is self:  # false if an unfinished task is garbage-collected
            _reporter.set(self._outer)

    def emit(self, line: str) -> None:
        if threading.get_ident() == self._thread:
            self._hand_over(line)
        elif self._callback is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._hand_over, line)

    def _hand_over(self, line: str) -> None:
        if self._callback is not None:
            self._callback(line)


_reporter: ContextVar[_Reporter | None] = ContextVar("reporter", default=None)
