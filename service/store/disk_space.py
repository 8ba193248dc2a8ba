"""Monitoring of the free disk space of the store and the workspaces."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.modules.tool_filesystem.quota import MB, free_bytes
from service.config.config import file_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from service.config.config import WorkspaceConfig

log = structlog.get_logger(__name__)

_EVERY_S = 30.0


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
    places: Mapping[str, Path], reserve_mb: int, free: dict[str, int], every_s: float = _EVERY_S
) -> AsyncIterator[None]:
    """Log the free space at the start, and whenever it crosses the reserve.

    `free` is updated with the free megabytes of each place.
    """
    free.update(found := await asyncio.to_thread(free_mb, places))
    log.info("disk.space", reserve_mb=reserve_mb, **{f"{name}_free_mb": mb for name, mb in found.items()})
    task = asyncio.create_task(_watch(places, reserve_mb, free, every_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _watch(places: Mapping[str, Path], reserve_mb: int, found: dict[str, int], every_s: float) -> None:
    low: set[str] = set()
    while True:
        found.update(await asyncio.to_thread(free_mb, places))
        for name, free in found.items():
            if free < reserve_mb and name not in low:
                low.add(name)
                log.warning("disk.low", place=name, path=str(places[name]), free_mb=free, reserve_mb=reserve_mb)
            elif free >= reserve_mb and name in low:
                low.remove(name)
                log.info("disk.recovered", place=name, path=str(places[name]), free_mb=free, reserve_mb=reserve_mb)
        await asyncio.sleep(every_s)
