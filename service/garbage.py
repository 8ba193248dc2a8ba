"""When cyclic garbage is collected.

A full collection visits all objects, about a thousand for each session, and pauses all runs: at a thousand
runs for a second. Python starts one whenever the objects have grown by a quarter, which is every few seconds under
load. Here they have to double, so that the pauses take a constant share of the work that creates the objects.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Young objects until a collection of the young ones, which takes about a millisecond; those for one of the middle ones.
_YOUNG, _YOUNG_COLLECTIONS = 10_000, 10
_NEVER = 1 << 30
# A full collection follows after at least so many new objects, or after any new ones at the latest after a while.
_LEAST, _AT_LATEST_S = 300_000, 600.0
_LOOK_EVERY_S = 1.0


@asynccontextmanager
async def collecting_garbage() -> AsyncIterator[None]:
    """Exclude the objects of the start from collections, and decide about full ones in place of Python."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG, _YOUNG_COLLECTIONS, _NEVER)
    gc.enable()
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()
        gc.set_threshold(*before)


async def _collect() -> None:
    """Look for ever whether a full collection is due."""
    objects, at_s = 0, time.monotonic()
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        new = gc.get_count()[2] * _YOUNG * _YOUNG_COLLECTIONS  # the middle collections since the last full one
        if new >= max(objects, _LEAST) or (new and time.monotonic() - at_s > _AT_LATEST_S):
            gc.collect()
            objects, at_s = len(gc.get_objects()), time.monotonic()
