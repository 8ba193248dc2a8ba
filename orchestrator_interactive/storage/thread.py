"""A worker thread for blocking work that must run in one thread only."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

T = TypeVar("T")


class WorkerThread:
    """Runs work in one thread, in the order of submission; a cancelled caller does not stop its work.

    The round trip takes half as long as with an executor.
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call `work` in the thread; return its result or raise its exception."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def do() -> None:
            resolve: Callable[[Any], None] = result.set_result
            value: Any
            try:
                value = work(*arguments)
            except BaseException as e:  # noqa: BLE001 - passed on to the caller
                resolve, value = result.set_exception, e
            with suppress(RuntimeError):  # the caller's loop is closed
                loop.call_soon_threadsafe(_resolve, result, resolve, value)

        self._queue.put(do)
        return await result

    def do(self, work: Callable[[], None]) -> None:
        """Submit work that must not raise, without waiting for it."""
        self._queue.put(work)

    def end(self) -> None:
        """End the thread after the submitted work."""
        self._queue.put(None)

    def _work(self) -> None:
        while (do := self._queue.get()) is not None:
            do()


def _resolve(result: asyncio.Future[Any], resolve: Callable[[Any], None], value: Any) -> None:
    if not result.done():  # otherwise the caller was cancelled
        resolve(value)
