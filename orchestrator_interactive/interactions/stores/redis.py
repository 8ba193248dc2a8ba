"""Logs in Redis, for several processes on several machines.

A log is one hash, so that it expires and moves as a whole. It holds the version, end, time and tree, each state under
"segment/index", and the fencing token, which may exist before the rest.

The server runs each script atomically. A script that is retried after a lost connection finds its id from the first
attempt and has no second effect.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.records import Key, as_json, damaged, fields_of, node_of
from orchestrator_interactive.interactions.stores.base import conflict, fenced, log_of_row, refuse_broken_text
from orchestrator_interactive.storage.redis import RedisClient, RedisScript

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.stores.base import Change, Log

# Index of all logs with their creation times; a separate key, because logs are spread over a cluster.
_INDEX = "interactions:logs"
_AGENTS = "interactions:agents"
# Logs per read.
_PAGE = 500
# Seconds after which an index entry without a log is an orphan: its first commit has long finished or failed.
_ENTERED_S = 60 * 60
# Seconds to keep the fence of a log that does not exist: longer than any refused writer lives.
_FENCE_S = 7 * 24 * 60 * 60

_COMMIT_DOUBT = " It is unknown whether the change was written: read the conversation again."
_REMOVE_DOUBT = " It is unknown whether the conversation was removed: look it up again."

# KEYS: the log. ARGV: expected version; id of this change; end; written; tree, blank if unchanged; seconds to keep the
# log, 0 for ever; fencing token of the writer, blank for no check; number of states, then field and value of each;
# segment, start and stop of each cut. Returns 1, or 0 if the log has another version, or -1 if its fencing token is
# higher.
_COMMIT = RedisScript("""
local found = redis.call('HMGET', KEYS[1], 'version', 'ids', 'fence')
local ids = found[2] or ''
local is_fenced = tonumber(found[3] or '0') > (tonumber(ARGV[7]) or math.huge)
if (found[1] or '0') ~= ARGV[1] or is_fenced then
    if string.find(ids, ARGV[2], 1, true) then
        return 1
    end
    return is_fenced and -1 or 0
end
local cuts = 9 + 2 * tonumber(ARGV[8])
for i = 9, cuts - 1, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
-- If no states are added, this runs first: a server whose memory is full allows writes after a deletion.
for i = cuts, #ARGV, 3 do
    for index = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]) - 1 do
        redis.call('HDEL', KEYS[1], ARGV[i] .. '/' .. index)
    end
end
if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[1], 'tree', ARGV[5])
end
ids = string.sub(ARGV[2] .. ids, 1, 8 * #ARGV[2])
redis.call('HSET', KEYS[1], 'end', ARGV[3], 'written', ARGV[4], 'ids', ids)
redis.call('HINCRBY', KEYS[1], 'version', 1)
if ARGV[6] ~= '0' then
    redis.call('EXPIRE', KEYS[1], ARGV[6])
else
    redis.call('PERSIST', KEYS[1])
end
return 1
""")

# KEYS: the log. ARGV: the token; seconds to keep the fence of a log that does not exist. Returns 2 if the log exists, 1
# if it does not, or 0 if its fencing token is higher.
_FENCE = RedisScript("""
local found = redis.call('HMGET', KEYS[1], 'fence', 'version')
if tonumber(found[1] or '0') > tonumber(ARGV[1]) then
    return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if not found[2] then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
    return 1
end
return 2
""")

# KEYS: the log; a key that stores the id of the removal for a minute. ARGV: expected version; id; seconds to keep the
# fence; fencing token, blank for no check. Returns what `_COMMIT` does.
_REMOVE = RedisScript("""
local found = redis.call('HMGET', KEYS[1], 'version', 'fence')
local is_fenced = tonumber(found[2] or '0') > (tonumber(ARGV[4]) or math.huge)
if (found[1] or '0') ~= ARGV[1] or is_fenced then
    if redis.call('GET', KEYS[2]) == ARGV[2] then
        return 1
    end
    return is_fenced and -1 or 0
end
redis.call('UNLINK', KEYS[1])
if found[2] then
    redis.call('HSET', KEYS[1], 'fence', found[2])
    redis.call('EXPIRE', KEYS[1], ARGV[3])
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', 60)
return 1
""")

# KEYS: the index. ARGV: key and time of each entry to remove; entries with a newer time are kept.
_TIDY = RedisScript("""
for i = 1, #ARGV, 2 do
    if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '') == tonumber(ARGV[i + 1]) then
        redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
return 1
""")


class RedisStore:
    """Logs in a Redis server or cluster."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._redis = client.redis

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(await RedisClient.open(url, _INDEX))

    async def load(self, key: Key) -> Log | None:
        await self._client.wait_for_detached(key.path)
        async with self._client.command():
            row = await self._redis.hmget(_place(key.path), ["version", "end", "written", "tree"])
        return log_of_row(key, *row) if any(row) else None

    async def commit(self, key: Key, change: Change) -> None:
        await self._client.wait_for_detached(key.path)
        with self._client.keep_open():
            done = await self._client.run_detached(key.path, self._write(key, change))
        if done != 1:
            raise conflict(key) if done == 0 else fenced(key)

    async def fence(self, key: Key, token: int) -> None:
        await self._client.wait_for_detached(key.path)
        done = await self._client.run(_FENCE, [_place(key.path)], [token, _FENCE_S])
        if not done:
            raise fenced(key)
        if done == 2:  # the log exists, but the index may have been lost
            async with self._client.command():
                await self._redis.zadd(_INDEX, {key.path: time.time()}, nx=True)

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        await self._client.wait_for_detached(key.path)
        fields = [f"{segment}/{index}" for index in range(start, stop)]
        async with self._client.command():
            values = await self._redis.hmget(_place(key.path), fields) if fields else ()
        return [_node(segment, index, raw) for index, raw in enumerate(values, start) if raw is not None]

    async def keys(self) -> list[Key]:
        with self._client.keep_open():
            async with self._client.command():
                paths = await self._redis.zrange(_INDEX, 0, -1)
            written = await self._written(paths)
        keys = {key: when for path, when in written.items() if (key := _key_of(path)) is not None}
        return sorted(keys, key=lambda key: (-keys[key], key.conversation_id, key.agent_id))

    async def remove(self, key: Key, version: int, fence: int | None = None) -> None:
        await self._client.wait_for_detached(key.path)
        place = _place(key.path)
        arguments = [version, secrets.token_hex(8), _FENCE_S, "" if fence is None else fence]
        done = await self._client.run(_REMOVE, [place, place + b":removed"], arguments, doubt=_REMOVE_DOUBT)
        if done != 1:
            raise conflict(key) if done == 0 else fenced(key)

    async def save_agent(self, agent_id: str, config: str) -> None:
        refuse_broken_text(agent_id, config)
        async with self._client.command():
            await self._redis.hset(_AGENTS, agent_id, config)

    async def agents(self) -> dict[str, str]:
        async with self._client.command():
            found = await self._redis.hgetall(_AGENTS)
        return dict(sorted((agent_id.decode(), config.decode()) for agent_id, config in found.items()))

    async def forget_agent(self, agent_id: str) -> None:
        async with self._client.command():
            await self._redis.hdel(_AGENTS, agent_id)

    async def delete_expired(self) -> None:
        """Remove old entries without a log from the index."""
        with self._client.keep_open():
            async with self._client.command():
                entries = await self._redis.zrange(_INDEX, 0, -1, withscores=True)
            written = await self._written([path for path, _ in entries])
            gone = [each for each in entries if each[0] not in written and each[1] < time.time() - _ENTERED_S]
            for at in range(0, len(gone), _PAGE):
                await self._client.run(_TIDY, [_INDEX], [part for entry in gone[at : at + _PAGE] for part in entry])

    async def aclose(self) -> None:
        """Close the connections after pending writes have finished."""
        await self._client.aclose()

    async def _write(self, key: Key, change: Change) -> int:
        tree = "" if change.tree is None else trees.to_json(change.tree)
        nodes = [part for node in change.nodes for part in (f"{node.segment}/{node.index}", _value(node))]
        cuts = [part for cut in change.cuts for part in (cut.segment, cut.start, cut.stop)]
        head = [change.version, change.id, change.end, change.written, tree, self._client.ttl_s]
        arguments = [*head, "" if change.fence is None else change.fence, len(change.nodes), *nodes, *cuts]
        if not change.version:
            # Before the log is written, so that the index misses no log.
            async with self._client.command(_COMMIT_DOUBT):
                await self._redis.zadd(_INDEX, {key.path: time.time()})
        done: int = await self._client.run(_COMMIT, [_place(key.path)], arguments, doubt=_COMMIT_DOUBT)
        return done

    async def _written(self, paths: list[bytes]) -> dict[bytes, float]:
        """Return the last write time of each of these logs; missing logs are left out."""
        found: dict[bytes, float] = {}
        for at in range(0, len(paths), _PAGE):
            page = paths[at : at + _PAGE]
            async with self._client.command(), self._redis.pipeline(transaction=False) as pipe:
                for path in page:
                    pipe.hget(_place(path), "written")
                times = await pipe.execute()
            for path, when in zip(page, times, strict=True):
                if when is not None:
                    found[path] = 0.0
                    with suppress(ValueError):  # it is damaged
                        found[path] = float(when)
        return found


def _place(path: str | bytes) -> bytes:
    """Return the Redis key of a log. The conversation in braces is the hash tag that selects the cluster slot."""
    conversation, slash, agent = (path.encode() if isinstance(path, str) else path).partition(b"/")
    return b"interactions:{" + conversation + b"}" + slash + agent


def _value(node: Node) -> bytes:
    """Encode a state: two lines of JSON, then its data unchanged."""
    envelope = node.envelope
    data = envelope["data"]
    head = as_json([envelope["v"], envelope["t"], envelope["ts"], envelope["compressed"], isinstance(data, str)])
    return f"{head}\n{fields_of(node)}\n".encode() + (data.encode() if isinstance(data, str) else data)


def _node(segment: int, index: int, raw: bytes) -> Node:
    try:
        head, fields, data = raw.split(b"\n", 2)
        v, t, ts, compressed, is_text = json.loads(head)
        text = data.decode() if is_text else data
    except (TypeError, ValueError, RecursionError):
        return damaged(segment, index)
    return node_of(segment, index, {"v": v, "t": t, "ts": ts, "data": text, "compressed": bool(compressed)}, fields)


def _key_of(path: bytes) -> Key | None:
    """Parse the key of an index entry; `None` if it is malformed."""
    try:
        return Key.of_path(path.decode())
    except ValueError:
        return None
