"""The server that a Redis URL names, and what can be wrong with it; no message ever holds a password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from orchestrator_interactive.storage.errors import StoreError

# For how long an answer is waited for.
TIMEOUT_S = 5
# Of connections; whoever finds none free waits for one.
_CONNECTIONS = 16
_WAIT_S = 30
_DAY_S = 24 * 60 * 60
_MOST_DAYS = 100 * 366

# The first that fits: some of these errors are kinds of others.
_REMEDIES = (
    (exceptions.AuthenticationError, "it wants another user or password. Name the right ones in the URL"),
    (exceptions.BusyLoadingError, "it is still loading its data. Try again in a moment"),
    (exceptions.ReadOnlyError, "it is a replica, which cannot be written. Name the primary in the URL"),
    (exceptions.OutOfMemoryError, "its memory is full. Raise its `maxmemory`, or prune conversations"),
    (exceptions.ClusterDownError, "its cluster is down: a part of it has no server. Look at `CLUSTER INFO`"),
    (exceptions.TimeoutError, f"it does not answer within {TIMEOUT_S} seconds. See whether it runs and can be reached"),
    (
        exceptions.ConnectionError,
        "{error}. See whether it runs, and whether the URL names the right scheme, host and port",
    ),
)

# These pass by themselves, or once somebody has made room: until then nobody loses anything by waiting. The words are
# how an error begins that has no type of its own.
_PASSING = (
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
_PASSING_WORDS = (_CANNOT_SAVE, "NOREPLICAS", "UNBLOCKED", "MASTERDOWN", "LOADING")
_LASTING = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.AuthenticationWrongNumberOfArgsError,
    exceptions.CrossSlotTransactionError,
)


@dataclass(frozen=True)
class Server:
    """A Redis server.

    Args:
        url: without what is only for us.
        place: host, port and database, for people.
        ttl_s: for how long a log is kept after its last change, in seconds; 0: for ever.
    """

    url: str
    place: str
    client: Redis
    ttl_s: int


def server(url: str) -> Server:
    """The server of a URL; nothing is asked of it yet.

    Raises:
        StoreError: the URL says something that is not understood.
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
            # A connection that the server has cut, or that was cut on the way; answers that are late are not waited
            # for a second time. It is soon over: who can wait asks again.
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 3, (exceptions.ConnectionError,)),
        )
        pool.make_connection()  # asks for nothing, but knows the options
    except (TypeError, ValueError):
        # Its own message may hold a part of the password.
        raise StoreError(
            "The Redis URL of the conversation log is not understood: it is "
            "redis://[:PASSWORD@]HOST[:PORT][/DB][?ttl_days=DAYS], special characters of the password written as %XX."
        ) from None
    return Server(plain, place, Redis.from_pool(pool), ttl_s)


def cluster(server: Server) -> RedisCluster:
    """The cluster that the server is a part of; nothing is asked of it yet.

    Raises:
        StoreError: the URL says something that no cluster has.
    """
    try:
        return RedisCluster.from_url(
            server.url,
            max_connections=1000,  # whoever asks bounds them
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 2),
        )
    except (TypeError, exceptions.RedisClusterException):
        raise StoreError(
            f"The Redis at {server.place} is a cluster, which has the database 0 only: end the URL with /0, and give "
            "it no options but `ttl_days`."
        ) from None


def passes(error: Exception) -> bool:
    """Whether the server may well do later what it did not do just now, asked for in the same way."""
    if isinstance(error, _LASTING):
        return False
    return isinstance(error, _PASSING) or str(error).startswith(_PASSING_WORDS)


def problem(place: str, error: Exception) -> str:
    """Why the server cannot be used, and what to do."""
    remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "{error}")
    if str(error).startswith(_CANNOT_SAVE):
        remedy = "it takes no writes while it cannot save to its disk. Make room there, or see what its own log says"
    reason = remedy.format(error=f"{error}".rstrip(". "))
    return f"The conversation log in Redis at {place} cannot be used: {reason}."


def _options(query: str) -> dict[str, str]:
    """What stands behind the question mark.

    Raises:
        ValueError: it is not of the form `name=value`, or a password, which nobody would take care to hide there.
    """
    options = dict(parse_qsl(query, strict_parsing=bool(query)))
    if "password" in options:
        raise ValueError
    return options


def _ttl_s(days: str | None) -> int:
    """How long that is, in seconds; 0: for ever.

    Raises:
        ValueError: it is no number of days, or so large that no server takes it.
    """
    if days is None:
        return 0
    if not 0 < float(days) <= _MOST_DAYS:
        raise ValueError
    return max(int(float(days) * _DAY_S), 1)
