"""Background work for the stores: deletion of expired data, and monitoring of the free disk space."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.modules.tool_filesystem.quota import MB, free_bytes
from orchestrator_interactive.storage.errors import StoreError
from service.config.config import file_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping
    from pathlib import Path

    from service.config.config import WorkspaceConfig

log = structlog.get_logger(__name__)

# A random interval between deletions, so that replicas run at different times.
_EXPIRE_EVERY_S = (30 * 60.0, 90 * 60.0)
_LOOK_EVERY_S = 30.0


class ExpiringStore(Protocol):
    async def delete_expired(self) -> None: ...


@asynccontextmanager
async def expiring(*stores: ExpiringStore) -> AsyncIterator[None]:
    """Delete expired data in the background."""

    async def expire() -> None:
        while True:
            await asyncio.sleep(random.uniform(*_EXPIRE_EVERY_S))  # noqa: S311 - no secret
            for store in stores:
                with ErrorBoundary(log, "store.expiry_failed"):
                    try:
                        await store.delete_expired()
                    except StoreError as e:
                        log.warning("store.expiry_failed", problem=str(e))

    async with _in_background(expire()):
        yield


def places(workspace: WorkspaceConfig, store_url: str) -> dict[str, Path]:
    """Return the folders whose disks are monitored; Redis has none."""
    file = file_of(store_url)
    return {"workspaces": workspace.root} | ({} if file is None else {"store": file.parent})


def free_mb(places: Mapping[str, Path]) -> dict[str, int]:
    """Return the free megabytes of each accessible place. For a missing folder, use its nearest existing parent."""
    found = {}
    for name, path in places.items():
        try:
            existing = next(folder for folder in (path, *path.parents) if folder.exists())
            found[name] = free_bytes(existing) // MB
        except OSError:
            continue
    return found


def lines(free: Mapping[str, int]) -> str:
    """Format one line per place for the health endpoint."""
    return "".join(f"{name}_free_mb {mb}\n" for name, mb in free.items())


@asynccontextmanager
async def watching_disks(
    places: Mapping[str, Path], reserve_mb: int, free: dict[str, int], every_s: float = _LOOK_EVERY_S
) -> AsyncIterator[None]:
    """Log the free space at the start, and whenever it crosses the reserve.

    `free` is updated with the free megabytes of each place.
    """

    async def watch() -> None:
        low: set[str] = set()
        while True:
            free.update(await asyncio.to_thread(free_mb, places))
            for name, mb in free.items():
                if (mb < reserve_mb) == (name in low):
                    continue
                low ^= {name}
                say, event = (log.warning, "disk.low") if name in low else (log.info, "disk.recovered")
                say(event, place=name, path=str(places[name]), free_mb=mb, reserve_mb=reserve_mb)
            await asyncio.sleep(every_s)

    free.update(await asyncio.to_thread(free_mb, places))
    log.info("disk.space", reserve_mb=reserve_mb, **{f"{name}_free_mb": mb for name, mb in free.items()})
    async with _in_background(watch()):
        yield


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
