"""Log stores in memory, in an SQLite file and in Redis. `open_store` opens the store of a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from orchestrator_interactive.interactions.stores.base import Change, Log, LogStore
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.interactions.stores.sqlite import SqliteStore
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.sqlite import sqlite_path

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

_KNOWN = "`memory:`, `sqlite:PATH`, `redis://HOST:PORT/DB` and `rediss://HOST:PORT/DB`"

__all__ = ["Change", "Log", "LogStore", "MemoryStore", "as_store", "open_store"]


async def open_store(url: str) -> LogStore:
    """Open the store of a URL and check that it works; the caller closes it with `aclose`.

    - `memory:` lasts as long as the process.
    - `sqlite:PATH` takes a relative or absolute path, `sqlite:///PATH` an absolute one. The file and its folder are
      created if they are missing.
    - `redis://[:PASSWORD@]HOST[:PORT][/DB][?ttl_days=DAYS]`, and `rediss://` with TLS. With `ttl_days` a conversation
      is deleted that many days after its last change.

    Raises:
        StoreError: the URL is unknown or the store cannot be used; nothing was changed.
    """
    scheme, colon, rest = url.partition(":")
    match scheme + colon:
        case "memory:" if not rest:
            return MemoryStore()
        case "sqlite:":
            return await SqliteStore.open(sqlite_path(url))
        case "redis:" | "rediss:":
            from orchestrator_interactive.interactions.stores.redis import (  # noqa: PLC0415 - costs import time
                RedisStore,
            )

            return await RedisStore.open(url)
    # The URL is not repeated: it may contain a password.
    raise StoreError(f"The URL of the conversation log names an unknown store; known are {_KNOWN}.")


def as_store(store: LogStore | Redis | RedisCluster) -> LogStore:
    """Return a store unchanged, or the store in the server of a `redis.asyncio` client, which the caller closes.

    Raises:
        TypeError: it is a synchronous client, or one that decodes its responses.
    """
    modules = [each.__module__ for each in type(store).__mro__]
    if not any(each.split(".")[0] == "redis" for each in modules):
        return cast("LogStore", store)
    if not any(each.startswith("redis.asyncio") for each in modules):
        raise TypeError(
            "The conversation log needs an asynchronous Redis client, and this one is synchronous: import Redis from "
            "`redis.asyncio`, or open a store with `open_store('redis://HOST:PORT/DB')`."
        )
    client: Any = store
    if client.get_encoder().decode_responses:
        raise TypeError(
            "The conversation log stores bytes: create the Redis client without `decode_responses=True`, or open a "
            "store with `open_store('redis://HOST:PORT/DB')`."
        )
    from orchestrator_interactive.interactions.stores.redis import RedisStore  # noqa: PLC0415 - costs import time
    from orchestrator_interactive.storage.redis import RedisClient  # noqa: PLC0415

    kwargs = client.get_connection_kwargs()
    place = f"{kwargs.get('host', 'the given server')}:{kwargs.get('port', 6379)}/{kwargs.get('db') or 0}"
    return RedisStore(RedisClient(place, client, ttl_s=0))
