"""What the stores keep and nobody needs any more goes, now and then, while the service runs."""

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

# Replicas do so at different times.
_EVERY_S = (30 * 60.0, 90 * 60.0)


class ExpiryReport(Protocol):
    async def tidy(self) -> None: ...


@asynccontextmanager
async def tidying(*stores: ExpiryReport, every_s: tuple[float, float] = _EVERY_S) -> AsyncIterator[None]:
    """Tidy the stores within this context, each time after a while between these two."""
    task = asyncio.create_task(_tidy(stores, every_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _tidy(stores: tuple[ExpiryReport, ...], every_s: tuple[float, float]) -> None:
    while True:
        await asyncio.sleep(random.uniform(*every_s))  # noqa: S311 - no secret
        for store in stores:
            try:
                await store.tidy()
            except StoreError as e:
                log.warning("store.not_tidied", problem=str(e))
