"""A Redis server or cluster: URLs, connections, scripts, and the sentences about its errors.

No message contains a password.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

T = TypeVar("T")

# Seconds to wait for an answer.
TIMEOUT_S = 5
# Connections to a server, and concurrent commands to a cluster; further commands wait.
_CONNECTIONS, _CLUSTER_COMMANDS = 16, 64
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
class RedisScript:
    """A Lua script. The client sends its text only if the server does not have it cached."""

    text: str

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Use `redis` only within `command()`.

    Attributes:
        place: host, port and database, for people.
        redis: the client; its commands return `bytes`, although its type hints allow more.
        ttl_s: seconds to keep data after their last change; 0 for ever.
    """

    def __init__(self, place: str, redis: Redis | RedisCluster, ttl_s: int) -> None:
        self.place = place
        self.redis: Any = redis
        self.ttl_s = ttl_s
        self._free = asyncio.Semaphore(_CLUSTER_COMMANDS) if isinstance(redis, RedisCluster) else None
        self._detached: dict[str, set[asyncio.Task[Any]]] = {}
        self._active = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_open = True

    @classmethod
    async def open(cls, url: str, index: str = "") -> Self:
        """Connect to the server or cluster of a URL and check that it answers, and that it can write the set `index`.

        Raises:
            StoreError: it cannot be used; nothing was changed.
        """
        plain, place, ttl_s, redis = _server(url)
        client = cls(place, redis, ttl_s)
        try:
            async with client.command():
                is_cluster = await _is_cluster(redis)
            if is_cluster:
                await client.aclose()
                client = cls(place, _cluster(plain, place), ttl_s)
            if index:
                async with client.command():
                    await client.redis.zrem(index, "")  # removes nothing, but fails on a server that refuses writes
        except BaseException:
            await client.aclose()
            raise
        return client

    @contextmanager
    def keep_open(self) -> Iterator[None]:
        """Delay `aclose` until the context exits; for work of several commands."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    def command(self, doubt: str = "") -> _Command:
        """Return a context that converts errors to StoreError with a readable message.

        `doubt` is added if the server may have executed the command although its answer is missing.

        Raises:
            StoreUnavailable: the server cannot be reached at the moment.
            StoreError: the server refused the command.
        """
        return _Command(self, doubt)

    async def run(
        self, script: RedisScript, keys: Sequence[str | bytes], arguments: Sequence[Any] = (), *, doubt: str = ""
    ) -> Any:
        """Run the script and return its result; all keys must be on one server."""
        async with self.command(doubt):
            try:
                return await self.redis.evalsha(script.sha, len(keys), *keys, *arguments)
            except exceptions.NoScriptError:
                return await self.redis.eval(script.text, len(keys), *keys, *arguments)

    async def run_each(self, script: RedisScript, calls: Sequence[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
        """Run the script once for each call, which has its keys and arguments, in one request to one server.

        Returns the results; the error in place of one that failed, which may be that the server does not know the
        script yet.
        """
        async with self.command(), self.redis.pipeline(transaction=False) as pipe:
            for keys, arguments in calls:
                pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            found: list[Any] = await pipe.execute(raise_on_error=False)
            return found

    def server_of(self, key: str) -> str:
        """Return the name of the server in a cluster that has a key; blank: there is no cluster, or it is not known."""
        node = self.redis.get_node_from_key(key) if isinstance(self.redis, RedisCluster) else None
        return "" if node is None else str(node.name)

    async def run_detached(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end even if the caller is cancelled; `wait_for_detached(name)` then waits for it."""
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._detached.setdefault(name, set()).add(task)
                task.add_done_callback(lambda task: self._forget_detached(name, task))
            raise

    async def wait_for_detached(self, name: str) -> None:
        """Wait for the work of this name whose callers were cancelled."""
        while tasks := self._detached.get(name):
            await asyncio.wait(tasks)

    async def aclose(self) -> None:
        """Close the connections after pending commands have finished."""
        self._is_open = False
        await self._is_idle.wait()
        await self.redis.aclose()

    def _forget_detached(self, name: str, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the cancelled caller does not
        self._detached[name].discard(task)
        if not self._detached[name]:
            del self._detached[name]

    def _begin(self) -> None:
        if not self._is_open and not self._active:
            raise StoreError("The conversation log has been closed: open it again.")
        self._active += 1
        self._is_idle.clear()

    def _end(self) -> None:
        self._active -= 1
        if not self._active:
            self._is_idle.set()


class _Command:
    """A class, because every push uses it: a generator-based context manager takes ten times as long."""

    __slots__ = ("_client", "_doubt", "_task", "_was_cancelled")

    def __init__(self, client: RedisClient, doubt: str) -> None:
        self._client = client
        self._doubt = doubt

    async def __aenter__(self) -> None:
        client, self._task = self._client, asyncio.current_task()
        self._was_cancelled = self._task.cancelling() if self._task else 0
        client._begin()  # noqa: SLF001 - a part of it
        if client._free is not None:  # noqa: SLF001
            try:
                await client._free.acquire()  # noqa: SLF001
            except BaseException:
                client._end()  # noqa: SLF001
                raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        client = self._client
        if client._free is not None:  # noqa: SLF001
            client._free.release()  # noqa: SLF001
        client._end()  # noqa: SLF001
        was_cancelled = self._task is not None and self._task.cancelling() > self._was_cancelled
        if was_cancelled and not isinstance(error, asyncio.CancelledError):
            # redis-py sends with `asyncio.wait_for`, which before Python 3.12 loses a cancellation if its task is done.
            raise asyncio.CancelledError
        if isinstance(error, AttributeError) and client._free is not None:  # noqa: SLF001
            # When a cluster is down, redis-py closes all its connections, including those that other tasks are opening.
            error = exceptions.ClusterDownError(str(error))
        if isinstance(error, exceptions.RedisError | exceptions.RedisClusterException | OSError):
            problem = _problem(client.place, error)
            is_transient = isinstance(error, _TRANSIENT) or str(error).startswith(_TRANSIENT_WORDS)
            if is_transient and not isinstance(error, _PERMANENT):  # a later retry may succeed
                raise StoreUnavailable(problem + self._doubt) from error
            raise StoreError(problem) from error


def encoded(conversation_id: str) -> str:
    """Return a conversation's id as its keys contain it, in braces: the hash tag that selects their cluster slot."""
    return quote(conversation_id, safe=":")


def _server(url: str) -> tuple[str, str, int, Redis]:
    """Parse a URL; does not connect.

    Returns the URL without the options of this project; host, port and database for people; the seconds to keep data
    after their last change, 0 for ever; the client.

    Raises:
        StoreError: the URL is invalid.
    """
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        days = options.pop("ttl_days", None)
        if "password" in options or (days is not None and not 0 < float(days) <= _MAX_DAYS):
            raise ValueError  # noqa: TRY301 - logs would not mask a password there; a server cannot store more days
        ttl_s = 0 if days is None else max(int(float(days) * _DAY_S), 1)
        database = int(parts.path.strip("/") or "0")
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
        return plain, f"{parts.hostname or 'localhost'}:{parts.port or 6379}/{database}", ttl_s, Redis.from_pool(pool)
    except (TypeError, ValueError):
        # The original message may contain a part of the password.
        raise StoreError(
            "The Redis URL of the conversation log is invalid: use "
            "redis://[:PASSWORD@]HOST[:PORT][/DB][?ttl_days=DAYS], with special characters of the password as %XX."
        ) from None


def _cluster(url: str, place: str) -> RedisCluster:
    """Return a client for the server's cluster; does not connect.

    Raises:
        StoreError: the URL has an option or a database that a cluster does not support.
    """
    try:
        return RedisCluster.from_url(
            url,
            max_connections=1000,  # _CLUSTER_COMMANDS is the effective limit
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 2),
        )
    except (TypeError, exceptions.RedisClusterException):
        raise StoreError(
            f"The Redis at {place} is a cluster, which only has database 0: end the URL with /0, and use "
            "no options except `ttl_days`."
        ) from None


async def _is_cluster(redis: Any) -> bool:
    """Ask the server whether it belongs to a cluster."""
    try:
        answer = await redis.execute_command("HELLO")
    except exceptions.AuthenticationError:
        raise
    except exceptions.ResponseError as e:
        # Other errors: the server is older than HELLO, or an ACL forbids it.
        return "not allowed in cluster mode" in str(e)
    fields = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=False))
    return fields.get(b"mode", fields.get("mode")) in (b"cluster", "cluster")


def _problem(place: str, error: Exception) -> str:
    """Describe why the server cannot be used, and the remedy."""
    remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "{error}")
    if str(error).startswith(_CANNOT_SAVE):
        remedy = "it refuses writes while it cannot save to its disk. Free space there, or check its own log"
    reason = remedy.format(error=f"{error}".rstrip(". "))
    return f"The conversation log in Redis at {place} cannot be used: {reason}."
