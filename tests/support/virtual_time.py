"""Tests in virtual time: waits take no real time, and end exactly."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any

from simulated.engine import InOrder, SimulatedLoop

from orchestrator_interactive.kernel import ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse

Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]


def in_virtual_time(test: Callable[..., Any]) -> Callable[..., None]:
    """Run a test on an event loop whose clock jumps to the next timer. It must not use sockets or threads."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        loop = SimulatedLoop(InOrder(random.Random(0)))  # noqa: S311 - the order is asyncio's own
        try:
            loop.run_until_complete(test(*args, **kwargs))
        finally:
            loop.close()

    return run


class Clock:
    """Records the times of model calls."""

    def __init__(self) -> None:
        self._times: list[float] = []

    @property
    def waits(self) -> list[float]:
        """The delays between successive calls."""
        return [later - earlier for earlier, later in zip(self._times, self._times[1:], strict=False)]

    def on(self, step: Step) -> Step:
        async def timed(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
            self._times.append(asyncio.get_running_loop().time())
            return await step(request, stream)

        return timed
