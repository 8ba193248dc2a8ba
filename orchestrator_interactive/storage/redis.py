"""A connection to Redis, a single server or a cluster, that says in sentences what goes wrong."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from redis import exceptions

from orchestrator_interactive.storage import redis_url
from orchestrator_interactive.storage.errors import StoreAway, StoreError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from orchestrator_interactive.storage.redis_url import Server

T = TypeVar("T")

# Of commands on their way to a cluster; whoever comes next waits. (A single server's pool has a bound of its own.)
_AT_ONCE = 64


@dataclass(frozen=True)
class RedisScript:
    """What the server does in one step. It is sent as a whole where a server does not know it yet."""

    text: str

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Use `redis` within `asking()` only.

    Attributes:
        place: host, port and database, for people.
        redis: for commands; what they give is `bytes`, and its types allow for much else.
        ttl_s: for how long something is kept after its last change, in seconds; 0: for ever.
        is_cluster: several servers share the keys.
        free: whoever asks a cluster holds one of these.
    """

    def __init__(self, server: Server, redis: Any, *, is_cluster: bool) -> None:
        self.place = server.place
        self.redis = redis
        self.ttl_s = server.ttl_s
        self.is_cluster = is_cluster
        self.free = asyncio.Semaphore(_AT_ONCE)
        self._unsettled: dict[str, set[asyncio.Task[Any]]] = {}
        self._underway = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_open = True

    @classmethod
    async def open(cls, url: str) -> Self:
        """A connection to the server or the cluster of a URL, which has answered.

        Raises:
            StoreError: it cannot be used.
        """
        server = redis_url.server(url)
        client = cls(server, server.client, is_cluster=False)
        try:
            async with client.asking():
                is_cluster = await _is_cluster(client.redis)
        except BaseException:
            await client.aclose()
            raise
        if not is_cluster:
            return client
        await client.aclose()
        return cls(server, redis_url.cluster(server), is_cluster=True)

    def underway(self) -> _Underway:
        """Have closing wait for what is done within this context, which may be asked for in several steps."""
        return _Underway(self)

    def asking(self, doubt: str = "") -> _Asking:
        """Say in a sentence what goes wrong within this context.

        `doubt` is added where the server may have done its work unseen.

        Raises:
            StoreAway: the server cannot be reached just now.
            StoreError: it does not do what it was asked for.
        """
        return _Asking(self, doubt)

    async def run(
        self, script: RedisScript, keys: Sequence[str | bytes], arguments: Sequence[Any] = (), *, doubt: str = ""
    ) -> Any:
        """What the script gives; all keys lie on one server."""
        async with self.asking(doubt):
            try:
                return await self.redis.evalsha(script.sha, len(keys), *keys, *arguments)
            except exceptions.NoScriptError:
                return await self.redis.eval(script.text, len(keys), *keys, *arguments)

    async def to_its_end(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Do it to its end, though the caller is cancelled: whoever then asks for what has this name waits for that."""
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._unsettled.setdefault(name, set()).add(task)
                task.add_done_callback(lambda task: self._settle(name, task))
            raise

    async def settled(self, name: str) -> None:
        """Return once nothing is on its way any more that somebody asked for and was cancelled."""
        while tasks := self._unsettled.get(name):
            await asyncio.wait(tasks)

    async def aclose(self) -> None:
        """Close the connections once all that is on its way is written."""
        self._is_open = False
        await self._is_idle.wait()
        await self.redis.aclose()

    def _settle(self, name: str, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # whoever was cancelled does not ask for it
        self._unsettled[name].discard(task)
        if not self._unsettled[name]:
            del self._unsettled[name]

    def _begin(self) -> None:
        if not self._is_open and not self._underway:
            raise StoreError("The conversation log has been closed: open it again.")
        self._underway += 1
        self._is_idle.clear()

    def _end(self) -> None:
        self._underway -= 1
        if not self._underway:
            self._is_idle.set()


# Classes, for every push comes through them: made of generators, they would take ten times as long.
class _Underway:
    __slots__ = ("_client",)

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def __enter__(self) -> None:
        self._client._begin()  # noqa: SLF001 - a part of it

    def __exit__(self, *_: object) -> None:
        self._client._end()  # noqa: SLF001


class _Asking:
    __slots__ = ("_client", "_doubt", "_task", "_was_cancelled")

    def __init__(self, client: RedisClient, doubt: str) -> None:
        self._client = client
        self._doubt = doubt

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._was_cancelled = self._task.cancelling() if self._task else 0
        self._client._begin()  # noqa: SLF001
        if self._client.is_cluster:
            try:
                await self._client.free.acquire()
            except BaseException:
                self._client._end()  # noqa: SLF001
                raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._client.is_cluster:
            self._client.free.release()
        self._client._end()  # noqa: SLF001
        if error is None and self._task is not None and self._task.cancelling() > self._was_cancelled:
            # redis-py sends by `asyncio.wait_for`, which before Python 3.12 loses it where what it waits for is done.
            raise asyncio.CancelledError
        if isinstance(error, AttributeError) and self._client.is_cluster:
            # Where a cluster is down, redis-py closes all its connections, also those that others are just opening.
            error = exceptions.ClusterDownError(str(error))
        if isinstance(error, exceptions.RedisError | exceptions.RedisClusterException | OSError):
            problem = redis_url.problem(self._client.place, error)
            raise (StoreAway(problem + self._doubt) if redis_url.passes(error) else StoreError(problem)) from error


async def _is_cluster(redis: Any) -> bool:
    """Whether the server is one of a cluster, as it says itself."""
    try:
        said = await redis.execute_command("HELLO")
    except exceptions.AuthenticationError:
        raise
    except exceptions.ResponseError as e:
        # Else it is older than the command, or keeps it from us.
        return "not allowed in cluster mode" in str(e)
    told = said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=False))
    return told.get(b"mode", told.get("mode")) in (b"cluster", "cluster")
