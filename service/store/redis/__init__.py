"""The backend for Redis servers and clusters, which several services may share; see `service.store.base.Backend`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.stores import open_store as open_logs
from service.store.redis.rate_budget import RedisBudget
from service.store.redis.store import RedisRunStore

if TYPE_CHECKING:
    from service.store.base import RunStore

__all__ = ["inspect_runs", "open_budget", "open_logs", "open_runs", "refuse_unprepared"]


async def open_runs(url: str) -> RunStore:
    """Open the run store at a URL. Log a warning if its data are not durable."""
    store = await RedisRunStore.open(url)
    try:
        await store.warn()
    except BaseException:
        await store.aclose()
        raise
    return store


async def inspect_runs(url: str) -> RunStore:
    return await RedisRunStore.open(url)


async def open_budget(url: str) -> RedisBudget:
    return await RedisBudget.open(url)


def refuse_unprepared(url: str) -> None:
    """Do nothing: the store needs no tables."""
