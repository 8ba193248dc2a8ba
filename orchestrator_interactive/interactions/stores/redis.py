"""Logs in Redis, for several processes on several machines."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from redis import exceptions

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.errors import StoreError
from orchestrator_interactive.interactions.records import Key, about, damaged
from orchestrator_interactive.interactions.stores import redis_scripts, redis_url, stored
from orchestrator_interactive.interactions.stores.base import conflict, is_within, refuse_broken_text, refuse_orphan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.stores.base import Change, Log
    from orchestrator_interactive.interactions.stores.redis_url import Server

T = TypeVar("T")

_as_json = json.JSONEncoder(separators=(",", ":")).encode

# All logs, and when each was begun; apart from them, since on a cluster they live on many servers.
_INDEX = "interactions:logs"
_AGENTS = "interactions:agents"
# Of a log; what stands in braces decides where it lies on a cluster.
_PLACE = "interactions:{%s}"
_STATE = re.compile(rb"(\d+)/(\d+)")
# Of states or logs that are read at a time.
_PAGE = 500
# Whoever has entered a log in the index has written it long before this is over, in seconds.
_ENTERED_S = 60 * 60


class RedisStore:
    """Logs in a Redis server.

    A log is one hash, so that it lasts, expires and moves as a whole: its version, end, time and tree, and each
    state under "segment/index".
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        # What its commands give is `bytes`; its types allow for much else.
        self._redis: Any = server.client
        self._commit = self._redis.register_script(redis_scripts.COMMIT)
        self._remove = self._redis.register_script(redis_scripts.REMOVE)
        self._tidy = self._redis.register_script(redis_scripts.TIDY)
        self._underway = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_open = True

    @classmethod
    async def open(cls, url: str) -> Self:
        """The store of this URL.

        Raises:
            StoreError: it cannot be used; nothing was changed.
        """
        store = cls(redis_url.server(url))
        try:
            with store._asking():
                # It takes nothing out, and only a server that can be written lets it through.
                await store._redis.zrem(_INDEX, "")
        except BaseException:
            await store.aclose()
            raise
        return store

    async def load(self, key: Key) -> Log | None:
        with self._asking():
            row = await self._redis.hmget(_place(key), ["version", "end", "written", "tree"])
            if any(row):  # the index may have been lost
                await self._redis.zadd(_INDEX, {key.path: time.time()}, nx=True)
        version, end, written, tree = row
        return stored.log(key, _number(version), _number(end), _number(written), tree) if any(row) else None

    async def commit(self, key: Key, change: Change) -> None:
        refuse_orphan(change)
        with self._asking(" Whether the change was written is not known: look at the conversation again."):
            done = await _to_its_end(self._write(key, change))
        if not done:
            raise conflict(key)

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        return await self._read(key, [(segment, index) for index in range(start, stop)])

    async def keys(self) -> list[Key]:
        with self._asking():
            entries = await self._redis.zrange(_INDEX, 0, -1, withscores=True)
            written = await self._written([path for path, _ in entries])
            gone = [each for each in entries if each[0] not in written and each[1] < time.time() - _ENTERED_S]
            if gone:
                await self._tidy([_INDEX], [part for entry in gone for part in entry])
        keys = {key: when for path, when in written.items() if (key := _key_of(path)) is not None}
        return sorted(keys, key=lambda key: (-keys[key], key.conversation_id, key.agent_id))

    async def scan(self, since: float, until: float, kinds: Sequence[str]) -> AsyncIterator[tuple[Key, Node]]:
        for key in await self.keys():
            with self._asking():
                fields = await self._redis.hkeys(_place(key))
            places = sorted((int(found[1]), int(found[2])) for field in fields if (found := _STATE.fullmatch(field)))
            for at in range(0, len(places), _PAGE):
                for node in await self._read(key, places[at : at + _PAGE]):
                    if is_within(node, since, until, kinds):
                        yield key, node

    async def remove(self, key: Key, version: int) -> None:
        with self._asking(" Whether the conversation was removed is not known: look for it again."):
            done = await self._remove([_place(key), f"{_place(key)}:removed"], [version, secrets.token_hex(8)])
        if not done:
            raise conflict(key)

    async def save_agent(self, agent_id: str, config: str) -> None:
        refuse_broken_text(agent_id, config)
        with self._asking():
            await self._redis.hset(_AGENTS, agent_id, config)

    async def agents(self) -> dict[str, str]:
        with self._asking():
            found = await self._redis.hgetall(_AGENTS)
        return dict(sorted((agent_id.decode(), config.decode()) for agent_id, config in found.items()))

    async def forget_agent(self, agent_id: str) -> None:
        with self._asking():
            await self._redis.hdel(_AGENTS, agent_id)

    async def aclose(self) -> None:
        """Close the connections once all that is on its way is written."""
        self._is_open = False
        await self._is_idle.wait()
        await self._redis.aclose()

    async def _write(self, key: Key, change: Change) -> bool:
        if change.tree is not None:
            # Before the log, so that none is ever missing from the index.
            await self._redis.zadd(_INDEX, {key.path: time.time()})
        return bool(await self._commit([_place(key)], _told(change, self._server.ttl_s)))

    async def _read(self, key: Key, places: Sequence[tuple[int, int]]) -> list[Node]:
        if not places:
            return []
        with self._asking():
            values = await self._redis.hmget(_place(key), [f"{segment}/{index}" for segment, index in places])
        return [_node(place, raw) for place, raw in zip(places, values, strict=True) if raw is not None]

    async def _written(self, paths: list[bytes]) -> dict[bytes, float]:
        """When each of these logs was written last; those that are not there are left out."""
        found: dict[bytes, float] = {}
        for at in range(0, len(paths), _PAGE):
            page = paths[at : at + _PAGE]
            async with self._redis.pipeline(transaction=False) as pipe:
                for path in page:
                    pipe.hget(_PLACE.encode() % path, "written")
                times = await pipe.execute()
            found |= {path: _number(when) or 0.0 for path, when in zip(page, times, strict=True) if when is not None}
        return found

    @contextmanager
    def _asking(self, doubt: str = "") -> Iterator[None]:
        """Say in a sentence what went wrong; `doubt` is added where the server may have done its work unseen."""
        if not self._is_open:
            raise StoreError("The conversation log has been closed: open it again.")
        self._underway += 1
        self._is_idle.clear()
        try:
            yield
        except (exceptions.ConnectionError, exceptions.TimeoutError) as e:
            raise StoreError(redis_url.problem(self._server.place, e) + doubt) from e
        except (exceptions.RedisError, OSError) as e:
            raise StoreError(redis_url.problem(self._server.place, e)) from e
        finally:
            self._underway -= 1
            if not self._underway:
                self._is_idle.set()


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Do it, and wait for its end even where the caller is cancelled: what comes next must see what was written."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    finally:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])


def _place(key: Key) -> str:
    return _PLACE % key.path


def _told(change: Change, ttl_s: int) -> list[Any]:
    """The change, as the script takes it."""
    tree = "" if change.tree is None else _as_json(trees.written(change.tree))
    nodes = [part for node in change.nodes for part in (f"{node.segment}/{node.index}", _value(node))]
    cuts = [part for cut in change.cuts for part in (cut.segment, cut.start, cut.stop)]
    head = [change.version, secrets.token_hex(8), change.end, change.written, tree, ttl_s]
    return [*head, len(change.nodes), *nodes, *cuts]


def _value(node: Node) -> bytes:
    """A state as it is kept: a line of JSON, then its data as they are."""
    envelope = node.envelope
    data = envelope["data"]
    is_text = isinstance(data, str)
    head = [envelope["v"], envelope["t"], envelope["ts"], envelope["compressed"], is_text, about(node)]
    return _as_json(head).encode() + b"\n" + (data.encode() if isinstance(data, str) else data)


def _node(place: tuple[int, int], raw: bytes) -> Node:
    segment, index = place
    head, _, data = raw.partition(b"\n")
    try:
        v, t, ts, compressed, is_text, told = json.loads(head)
        text = data.decode() if is_text else data
    except (TypeError, ValueError, RecursionError):
        return damaged(segment, index)
    return stored.node(segment, index, {"v": v, "t": t, "ts": ts, "data": text, "compressed": bool(compressed)}, told)


def _number(raw: bytes | None) -> Any:
    """The number that was written; `None`: it is damaged."""
    try:
        return json.loads(raw or b"")
    except ValueError:
        return None


def _key_of(path: bytes) -> Key | None:
    """The key of an entry of the index; `None`: it is none of ours."""
    try:
        return Key.of_path(path.decode())
    except ValueError:
        return None
