"""Parse Redis URLs and describe Redis errors; no message contains a password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from orchestrator_interactive.storage.errors import StoreError

# Seconds to wait for an answer.
TIMEOUT_S = 5
# Pool size; further commands wait for a free connection.
_CONNECTIONS = 16
_WAIT_S = 30
_DAY_S = 24 * 60 * 60
_MAX_DAYS = 100 * 366

# The first match counts: some of these errors are subclasses of others.
_REMEDIES = (
    (exceptions.AuthenticationError, "it wants another user or password. Name the right ones in the URL"),
    (exceptions.BusyLoadingError, "it is still loading its data. Try again in a moment"),
    (exceptions.ReadOnlyError, "it is a replica, which cannot be written. Name the primary in the URL"),
    (exceptions.OutOfMemoryError, "its memory is full. Raise its `maxmemory`, or prune conversations"),
    (exceptions.ClusterDownError, "its cluster is down: a part of it has no server. Look at `CLUSTER INFO`"),
    (exceptions.TimeoutError, f"it does not answer within {TIMEOUT_S} seconds. Check that it runs and is reachable"),
    (
        exceptions.ConnectionError,
        "{error}. Check that it runs, and that the URL has the right scheme, host and port",
    ),
)

# Transient errors, or errors that end once an operator frees space: a retry may succeed. The words are prefixes of
# errors without a type.
_TRANSIENT = (
    exceptions.OutOfMemoryError,
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.ClusterError,
    exceptions.TryAgainError,
    exceptions.AskError,
    exceptions.RedisClusterException,
    OSError,
)
_CANNOT_SAVE = "MISCONF"
_TRANSIENT_WORDS = (_CANNOT_SAVE, "NOREPLICAS", "UNBLOCKED", "MASTERDOWN", "LOADING")
_PERMANENT = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.AuthenticationWrongNumberOfArgsError,
    exceptions.CrossSlotTransactionError,
)


@dataclass(frozen=True)
class Server:
    """A Redis server.

    Args:
        url: without the options of this project.
        place: host, port and database, for people.
        ttl_s: seconds to keep a log after its last change; 0 for ever.
    """

    url: str
    place: str
    client: Redis
    ttl_s: int


def server(url: str) -> Server:
    """Parse a URL; does not connect.

    Raises:
        StoreError: the URL is invalid.
    """
    try:
        parts = urlsplit(url)
        options = _options(parts.query)
        database, ttl_s = int(parts.path.strip("/") or "0"), _ttl_s(options.pop("ttl_days", None))
        place = f"{parts.hostname or 'localhost'}:{parts.port or 6379}/{database}"
        plain = parts._replace(query=urlencode(options)).geturl()
        pool: Any = BlockingConnectionPool.from_url(
            plain,
            max_connections=_CONNECTIONS,
            timeout=_WAIT_S,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            # Retry only cut connections: a late answer is not awaited again, and callers that can wait longer retry.
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 3, (exceptions.ConnectionError,)),
        )
        pool.make_connection()  # validates the options; does not connect
    except (TypeError, ValueError):
        # The original message may contain a part of the password.
        raise StoreError(
            "The Redis URL of the conversation log is invalid: use "
            "redis://[:PASSWORD@]HOST[:PORT][/DB][?ttl_days=DAYS], with special characters of the password as %XX."
        ) from None
    return Server(plain, place, Redis.from_pool(pool), ttl_s)


def cluster(server: Server) -> RedisCluster:
    """Return a client for the server's cluster; does not connect.

    Raises:
        StoreError: the URL has an option or a database that a cluster does not support.
    """
    try:
        return RedisCluster.from_url(
            server.url,
            max_connections=1000,  # RedisClient.free is the effective limit
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 2),
        )
    except (TypeError, exceptions.RedisClusterException):
        raise StoreError(
            f"The Redis at {server.place} is a cluster, which only has database 0: end the URL with /0, and use "
            "no options except `ttl_days`."
        ) from None


def is_transient(error: Exception) -> bool:
    """Return whether a later retry may succeed."""
    if isinstance(error, _PERMANENT):
        return False
    return isinstance(error, _TRANSIENT) or str(error).startswith(_TRANSIENT_WORDS)


def problem(place: str, error: Exception) -> str:
    """Describe why the server cannot be used, and the remedy."""
    remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "{error}")
    if str(error).startswith(_CANNOT_SAVE):
        remedy = "it refuses writes while it cannot save to its disk. Free space there, or check its own log"
    reason = remedy.format(error=f"{error}".rstrip(". "))
    return f"The conversation log in Redis at {place} cannot be used: {reason}."


def _options(query: str) -> dict[str, str]:
    """Parse the query of a URL.

    Raises:
        ValueError: it is not of the form `name=value`, or contains a password, which logs would not mask there.
    """
    options = dict(parse_qsl(query, strict_parsing=bool(query)))
    if "password" in options:
        raise ValueError
    return options


def _ttl_s(days: str | None) -> int:
    """Convert days to seconds; 0 for ever.

    Raises:
        ValueError: it is not a number of days, or too large for a server.
    """
    if days is None:
        return 0
    if not 0 < float(days) <= _MAX_DAYS:
        raise ValueError
    return max(int(float(days) * _DAY_S), 1)
