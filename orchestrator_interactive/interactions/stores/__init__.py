"""Log stores in memory, in an SQLite file and in Redis. `open_store` opens the store of a URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.interactions.stores.sqlite import SqliteStore
from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.stores.base import LogStore

_KNOWN = "`memory:`, `sqlite:PATH`, `redis://HOST:PORT/DB` and `rediss://HOST:PORT/DB`"

__all__ = ["open_store", "sqlite_path"]


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


def sqlite_path(url: str) -> Path:
    """Return the path in an SQLite URL.

    Raises:
        StoreError: the URL has no valid path.
    """
    rest = url.removeprefix("sqlite:")
    if rest.startswith("//") and not rest.startswith("///"):
        raise StoreError("An SQLite URL has one slash or three: `sqlite:logs.db`, or `sqlite:///var/lib/logs.db`.")
    name = rest.removeprefix("//")
    if not name or "\0" in name:
        raise StoreError("An SQLite URL names a file: `sqlite:logs.db`, or `sqlite:///var/lib/logs.db`.")
    return Path(name).expanduser().absolute()
