"""Where inboxes, leases and runs are kept: in an SQLite file, or in Redis, beside the logs of the conversations.

`open_run_store` is the service's door, `visit_run_store` that of commands beside it; `open_budget` is for what replicas
share of Slack's rate limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.stores import sqlite_path
from orchestrator_interactive.storage.errors import StoreError
from service.store.sqlite.store import SqliteRunStore, refuse_older

if TYPE_CHECKING:
    from service.store.base import RunStore
    from service.store.redis.rate_budget import RedisBudget
    from service.store.redis.store import RedisRunStore

_KNOWN = "`sqlite:PATH`, `redis://HOST:PORT/DB` and `rediss://HOST:PORT/DB`"

__all__ = ["open_budget", "open_run_store", "refuse_unprepared", "visit_run_store"]


async def open_run_store(url: str) -> RunStore:
    """The store of a URL, as for the logs of conversations, for a service that runs agents.

    An SQLite file is this process's alone from here on, and the leases of the one before it are over.

    Raises:
        StoreError: there is no such store, or it cannot be used; nothing was changed.
    """
    match _scheme(url):
        case "sqlite":
            return await SqliteRunStore.open(sqlite_path(url))
        case _:
            return await _redis_store().open(url)


async def visit_run_store(url: str) -> RunStore:
    """The store of a URL, for who looks at it or tidies it beside the services that use it.

    Raises:
        StoreError: as in `open_run_store`.
    """
    match _scheme(url):
        case "sqlite":
            return await SqliteRunStore.visit(sqlite_path(url))
        case _:
            return await _redis_store().visit(url)


async def open_budget(url: str) -> RedisBudget | None:
    """The budget of calls to Slack that all services share that use the store of this URL; `None`: it has one service.

    Raises:
        StoreError: there is no such store, or it cannot be used.
    """
    if _scheme(url) == "sqlite":
        return None
    from service.store.redis.rate_budget import RedisBudget  # noqa: PLC0415 - who has no Redis does not wait for its client

    return await RedisBudget.open(url)


def refuse_unprepared(url: str) -> None:
    """Raise StoreError where to open the store of this URL would change it."""
    if _scheme(url) == "sqlite":
        refuse_older(sqlite_path(url))


def _redis_store() -> type[RedisRunStore]:
    from service.store.redis.store import RedisRunStore  # noqa: PLC0415 - who has no Redis does not wait for its client

    return RedisRunStore


def _scheme(url: str) -> str:
    """What the URL begins with.

    Raises:
        StoreError: it names no store that outlives the process.
    """
    scheme, colon, _ = url.partition(":")
    if url == "memory:":
        raise StoreError(f"What is kept in memory is lost with the process: use {_KNOWN}.")
    if not colon or scheme not in ("sqlite", "redis", "rediss"):
        # It is not repeated: it may hold a password.
        raise StoreError(f"The URL of the store names none that is known; known are {_KNOWN}.")
    return scheme
