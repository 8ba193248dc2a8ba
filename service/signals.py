"""The signals that end a process of the service, and the one that reloads its configuration."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import FrameType

    Handler = Callable[[int, FrameType | None], object] | int | None

log = structlog.get_logger(__name__)

# Handlers for a signal that comes a second time: terminate immediately.
_AT_ONCE: Mapping[signal.Signals, Handler] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
# Python's interpreter shutdown takes a moment even if the grace is shorter.
_SHORTEST_GRACE_S = 0.5


@asynccontextmanager
async def until_signalled(grace_s: float) -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGINT and SIGTERM set. If the body does not wait for it yet, cancel the body.

    The same signal a second time terminates the process immediately. A process that is still alive `grace_s` after the
    first signal is killed.
    """
    ended, loop, body = _Ended(), asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        ended.set()
        if not ended.awaited and body is not None:
            body.cancel()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # Only this one: Ctrl-C also reaches a parent, whose SIGTERM may be pending already.
        _install({signal.Signals(number): _AT_ONCE[signal.Signals(number)]})
        last_resort = threading.Timer(max(grace_s, _SHORTEST_GRACE_S), _kill)
        last_resort.daemon = True
        last_resort.start()
        loop.call_soon_threadsafe(end)

    # The event loop's signal handlers would not run while a tool blocks the loop.
    before = _install(dict.fromkeys(_AT_ONCE, on_signal))
    try:
        yield ended
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
        log.info("service.stopped_at_start")
    finally:
        if not ended.is_set():
            _install(before)


@asynccontextmanager
async def on_hangup() -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGHUP sets, unless it reports that the terminal was closed: then end the service."""
    event, loop, has_terminal = asyncio.Event(), asyncio.get_running_loop(), sys.stderr.isatty()

    def on_signal() -> None:
        if has_terminal and not sys.stderr.isatty():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            event.set()

    loop.add_signal_handler(signal.SIGHUP, on_signal)
    try:
        yield event
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _install(handlers: Mapping[signal.Signals, Handler]) -> dict[signal.Signals, Handler]:
    """Install signal handlers and return the previous ones."""
    return {number: signal.signal(number, handler) for number, handler in handlers.items()}


def _kill() -> None:
    log.critical("service.killed")
    os._exit(1)


class _Ended(asyncio.Event):
    awaited = False

    async def wait(self) -> Literal[True]:
        self.awaited = True
        return await super().wait()
