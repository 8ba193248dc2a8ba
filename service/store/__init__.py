"""Stores of inboxes, leases and runs, in the SQLite file or the Redis that also contains the conversation logs.

`open_run_store` is for the service, `inspect_run_store` for CLI commands. `open_budget` opens the rate budget that
replicas share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.stores import sqlite_path
from orchestrator_interactive.storage.errors import StoreError
from service.store.sqlite.store import SqliteRunStore, refuse_unprepared_file

if TYPE_CHECKING:
    from service.store.base import RunStore
    from service.store.redis.rate_budget import RedisBudget
    from service.store.redis.store import RedisRunStore

_SUPPORTED = "`sqlite:PATH`, `redis://HOST:PORT/DB` or `rediss://HOST:PORT/DB`"

__all__ = ["inspect_run_store", "open_budget", "open_run_store", "refuse_unprepared"]


async def open_run_store(url: str) -> RunStore:
    """Open the run store at a URL for a service.

    An SQLite file is locked by this process, and all its leases end.

    Raises:
        StoreError: the URL is not supported, or the store cannot be used; nothing was changed.
    """
    match _scheme(url):
        case "sqlite":
            return await SqliteRunStore.open(sqlite_path(url))
        case _:
            return await _redis_store().open(url)


async def inspect_run_store(url: str) -> RunStore:
    """Open the run store at a URL for a CLI command, without a lock or leases. Services may use it at the same time.

    Raises:
        StoreError: as in `open_run_store`.
    """
    match _scheme(url):
        case "sqlite":
            return await SqliteRunStore.inspect(sqlite_path(url))
        case _:
            return await _redis_store().inspect(url)


async def open_budget(url: str) -> RedisBudget | None:
    """Open the rate budget shared by all services on the store at a URL; `None` for SQLite, which has one service.

    Raises:
        StoreError: the URL is not supported, or the store cannot be used.
    """
    if _scheme(url) == "sqlite":
        return None
    from service.store.redis.rate_budget import RedisBudget  # noqa: PLC0415 - SQLite does not need the Redis client

    return await RedisBudget.open(url)


def refuse_unprepared(url: str) -> None:
    """Raise StoreError if opening the store at this URL would create its tables."""
    if _scheme(url) == "sqlite":
        refuse_unprepared_file(sqlite_path(url))


def _redis_store() -> type[RedisRunStore]:
    from service.store.redis.store import RedisRunStore  # noqa: PLC0415 - SQLite does not need the Redis client

    return RedisRunStore


def _scheme(url: str) -> str:
    """Return the URL's scheme.

    Raises:
        StoreError: the URL is not that of a persistent store.
    """
    scheme, colon, _ = url.partition(":")
    if url == "memory:":
        raise StoreError(f"A store in memory is not persistent: use {_SUPPORTED}.")
    if not colon or scheme not in ("sqlite", "redis", "rediss"):
        # The message does not contain the URL, which may contain a password.
        raise StoreError(f"The URL of the store is not supported: use {_SUPPORTED}.")
    return scheme
