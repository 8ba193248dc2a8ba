"""Where logs are kept: in memory, in an SQLite file, or in Redis. `open_store` finds the one for a URL."""

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
    """The store of a URL, once it has shown that it can be used; whoever opens it closes it (`aclose`).

    - `memory:` lasts as long as the process.
    - `sqlite:PATH`, the path being relative or absolute, as it stands there; `sqlite:///PATH` from the root on. The
      file and its folder are made where they are missing.
    - `redis://[:PASSWORD@]HOST[:PORT][/DB][?ttl_days=DAYS]`, and `rediss://` with TLS. With `ttl_days` a conversation
      is forgotten that many days after its last change.

    Raises:
        StoreError: there is no such store, or it cannot be used; nothing was changed.
    """
    scheme, colon, rest = url.partition(":")
    match scheme + colon:
        case "memory:" if not rest:
            return MemoryStore()
        case "sqlite:":
            return await SqliteStore.open(sqlite_path(url))
        case "redis:" | "rediss:":
            from orchestrator_interactive.interactions.stores.redis import (  # noqa: PLC0415 - who has none does not wait
                RedisStore,
            )

            return await RedisStore.open(url)
    # It is not repeated: it may hold a password.
    raise StoreError(f"The URL of the conversation log names no store that is known; known are {_KNOWN}.")


def sqlite_path(url: str) -> Path:
    """The file that an SQLite URL names.

    Raises:
        StoreError: it names none.
    """
    rest = url.removeprefix("sqlite:")
    if rest.startswith("//") and not rest.startswith("///"):
        raise StoreError("An SQLite URL has one slash or three: `sqlite:logs.db`, or `sqlite:///var/lib/logs.db`.")
    name = rest.removeprefix("//")
    if not name or "\0" in name:
        raise StoreError("An SQLite URL names a file: `sqlite:logs.db`, or `sqlite:///var/lib/logs.db`.")
    return Path(name).expanduser().absolute()
