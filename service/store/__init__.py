"""Stores of inboxes, leases and runs, in the SQLite file or the Redis that also contains the conversation logs.

`open_run_store` is for the service, `inspect_run_store` for CLI commands. `open_log_store` opens the conversation logs,
and `open_budget` the rate budget that replicas share. All raise StoreError if the URL is not supported, or the store
cannot be used; nothing was changed then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.stores import LogStore
    from service.store.base import Backend, RunStore, SharedBudget

_SUPPORTED = "`sqlite:PATH`, `redis://HOST:PORT/DB` or `rediss://HOST:PORT/DB`"

__all__ = ["check_url", "inspect_run_store", "open_budget", "open_log_store", "open_run_store", "refuse_unprepared"]


async def open_run_store(url: str) -> RunStore:
    """Open the run store at a URL for a service. An SQLite file is locked by this process, and all its leases end."""
    return await _backend(url).open_runs(url)


async def inspect_run_store(url: str) -> RunStore:
    """Open the run store at a URL for a CLI command, without a lock or leases. Services may use it at the same time."""
    return await _backend(url).inspect_runs(url)


async def open_log_store(url: str) -> LogStore:
    """Open the conversation logs at a URL."""
    return await _backend(url).open_logs(url)


async def open_budget(url: str) -> SharedBudget | None:
    """Open the rate budget shared by all services on the store at a URL; `None` if the store has one service."""
    return await _backend(url).open_budget(url)


def check_url(url: str) -> None:
    """Raise StoreError if no backend has URLs of this form."""
    _backend(url)


def refuse_unprepared(url: str) -> None:
    """Raise StoreError if opening the store at this URL would create its tables."""
    _backend(url).refuse_unprepared(url)


def _backend(url: str) -> Backend:
    """Return the backend of a URL; its modules are imported at the first use, because they cost time.

    Raises:
        StoreError: the URL is not that of a persistent store.
    """
    scheme, colon, _ = url.partition(":")
    match scheme + colon:
        case "memory:":
            raise StoreError(f"A store in memory is not persistent: use {_SUPPORTED}.")
        case "sqlite:":
            from service.store import sqlite  # noqa: PLC0415

            return sqlite
        case "redis:" | "rediss:":
            from service.store import redis  # noqa: PLC0415

            return redis
    # The message does not contain the URL, which may contain a password.
    raise StoreError(f"The URL of the store is not supported: use {_SUPPORTED}.")
