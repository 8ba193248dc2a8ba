"""Waiting for what has no event of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_EVERY_S = 0.01


async def wait_for(condition: Callable[[], bool], timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - amplifier_core's name
    """Wait until a condition holds, for at most `timeout` seconds; returns whether it came to hold.

    It is looked at every 10 ms, at least once, and a last time when the time is up.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not condition():
        left_s = deadline - loop.time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(_LOOK_EVERY_S, left_s))
    return True
