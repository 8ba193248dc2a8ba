"""Periodic deletion of expired data in the stores."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import structlog

from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = structlog.get_logger(__name__)

# A random interval, so that replicas run at different times.
_EVERY_S = (30 * 60.0, 90 * 60.0)


class ExpiringStore(Protocol):
    async def delete_expired(self) -> None: ...


@asynccontextmanager
async def expiring(*stores: ExpiringStore, every_s: tuple[float, float] = _EVERY_S) -> AsyncIterator[None]:
    """Delete expired data in the background, at random intervals between the two of `every_s`."""
    task = asyncio.create_task(_expire(stores, every_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _expire(stores: tuple[ExpiringStore, ...], every_s: tuple[float, float]) -> None:
    while True:
        await asyncio.sleep(random.uniform(*every_s))  # noqa: S311 - no secret
        for store in stores:
            try:
                await store.delete_expired()
            except StoreError as e:
                log.warning("store.expiry_failed", problem=str(e))
