"""Poll a condition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_INTERVAL_S = 0.01


async def wait_for(condition: Callable[[], bool], timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - amplifier_core's name
    """Wait until a condition is true, for at most `timeout` seconds; return whether it became true.

    It is evaluated every 10 ms, at least once, and once more at the end.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not condition():
        left_s = deadline - loop.time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(_POLL_INTERVAL_S, left_s))
    return True
