"""A thread for what must not hold up the event loop, and may be done by one thread only."""

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


class OneThread:
    """Does what it is asked for one after the other, in the order of asking, and to its end, whoever is cancelled.

    The hop there and back takes half as long as one to an executor's thread.
    """

    def __init__(self, name: str) -> None:
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` gives or raises, called in the thread."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def do() -> None:
            tell: Callable[[Any], None] = answer.set_result
            given: Any
            try:
                given = work(*arguments)
            except BaseException as e:  # noqa: BLE001 - whoever asked is told
                tell, given = answer.set_exception, e
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(_tell, answer, tell, given)

        self._asked.put(do)
        return await answer

    def do(self, work: Callable[[], None]) -> None:
        """Have this done, which raises nothing, without waiting for it."""
        self._asked.put(work)

    def end(self) -> None:
        """Let the thread end once it has done what it was asked for."""
        self._asked.put(None)

    def _work(self) -> None:
        while (do := self._asked.get()) is not None:
            do()


def _tell(answer: asyncio.Future[Any], tell: Callable[[Any], None], given: Any) -> None:
    if not answer.done():  # else whoever asked was cancelled
        tell(given)
