"""A connection to a Redis server or cluster, with readable error messages."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from redis import exceptions

from orchestrator_interactive.storage import redis_url
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from orchestrator_interactive.storage.redis_url import Server

T = TypeVar("T")

# Concurrent commands to a cluster; further ones wait. (A single server's pool has its own limit.)
_MAX_CONCURRENT = 64


@dataclass(frozen=True)
class RedisScript:
    """A Lua script. The client sends its text only if the server does not have it cached."""

    text: str

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Use `redis` only within `asking()`.

    Attributes:
        place: host, port and database, for people.
        redis: the client; its commands return `bytes`, although its type hints allow more.
        ttl_s: seconds to keep data after their last change; 0 for ever.
        is_cluster: whether several servers share the keys.
        free: limits the concurrent commands to a cluster.
    """

    def __init__(self, server: Server, redis: Any, *, is_cluster: bool) -> None:
        self.place = server.place
        self.redis = redis
        self.ttl_s = server.ttl_s
        self.is_cluster = is_cluster
        self.free = asyncio.Semaphore(_MAX_CONCURRENT)
        self._detached: dict[str, set[asyncio.Task[Any]]] = {}
        self._active = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_open = True

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect to the server or cluster of a URL and check that it answers.

        Raises:
            StoreError: it cannot be used.
        """
        server = redis_url.server(url)
        client = cls(server, server.client, is_cluster=False)
        async with AsyncExitStack() as at_end:
            at_end.push_async_callback(client.aclose)
            async with client.command():
                is_cluster = await _is_cluster(client.redis)
            if not is_cluster:
                at_end.pop_all()
                return client
        return cls(server, redis_url.cluster(server), is_cluster=True)

    def keep_open(self) -> _KeepOpen:
        """Return a context that delays `aclose` until it exits; for work of several commands."""
        return _KeepOpen(self)

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


# Classes, because every push uses them: generator-based context managers take ten times as long.
class _KeepOpen:
    __slots__ = ("_client",)

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def __enter__(self) -> None:
        self._client._begin()  # noqa: SLF001 - a part of it

    def __exit__(self, *_: object) -> None:
        self._client._end()  # noqa: SLF001


class _Command:
    __slots__ = ("_client", "_doubt", "_task", "_was_cancelled")

    def __init__(self, client: RedisClient, doubt: str) -> None:
        self._client = client
        self._doubt = doubt

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._was_cancelled = self._task.cancelling() if self._task else 0
        self._client._begin()  # noqa: SLF001
        if self._client.is_cluster:
            with ExitStack() as undo:
                undo.callback(self._client._end)  # noqa: SLF001
                await self._client.free.acquire()
                undo.pop_all()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._client.is_cluster:
            self._client.free.release()
        self._client._end()  # noqa: SLF001
        if error is None and self._task is not None and self._task.cancelling() > self._was_cancelled:
            # redis-py sends with `asyncio.wait_for`, which before Python 3.12 loses a cancellation if its task is done.
            raise asyncio.CancelledError
        if isinstance(error, AttributeError) and self._client.is_cluster:
            # When a cluster is down, redis-py closes all its connections, including those that other tasks are opening.
            error = exceptions.ClusterDownError(str(error))
        if isinstance(error, exceptions.RedisError | exceptions.RedisClusterException | OSError):
            problem = redis_url.problem(self._client.place, error)
            raise (
                StoreUnavailable(problem + self._doubt) if redis_url.is_transient(error) else StoreError(problem)
            ) from error


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
