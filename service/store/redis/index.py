"""Indexes of all conversations and of due conversations in Redis, apart from the conversations' own cluster slots.

A conversation is entered into the indexes before it changes, and removed long after its last pending work. A process
that dies in between leaves a superfluous entry, never a missing one. Entries are therefore verified before use.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import structlog

from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from orchestrator_interactive.storage.redis import encoded
from service.store.base import MAX_DUE_IN_S, workspace_of
from service.store.redis.scripts import script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.storage.redis import RedisClient

log = structlog.get_logger(__name__)

# The index of all conversations, and that of their workspaces, which is never shortened.
ALL, _WORKSPACES = "runs:{index}:all", "runs:{index}:workspaces"
# Number of conversations per request.
_PAGE = 100
# Upper bound of the time between entering a conversation and writing to it, in milliseconds.
_ENTERED_MS = 60 * 60 * 1000
# Entries due later than this, in milliseconds, were written before the server's clock was set back, or have an
# unusually long lease.
_FAR_MS = 2 * 60 * 1000

# ARGV: the maximum delay until a conversation without an owner is due. Returns 1 and the time since when it is due; 0
# and the time of the next check; -1 if there is no pending work.
_LOOK = script("""
local now = clock()
if owner_at(now) then
    return {0, tonumber(redis.call('HGET', KEYS[1], 'until'))}
end
if not has_something_to_do() then
    return {-1, 0}
end
local due = tonumber(redis.call('HGET', KEYS[1], 'due') or '0')
if due - now > tonumber(ARGV[1]) then  -- written before the clock was set back
    return {1, now}
end
return {due <= now and 1 or 0, due}
""")

# KEYS: the index of due conversations, by time; the indexes of all conversations and of their workspaces. ARGV: a
# conversation, the delay until its next check, and its workspace. The score always changes, so that a concurrent check
# of the old score keeps the entry.
ENTER = script("""
local now = clock()
redis.call('SADD', KEYS[3], ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[1])
local at = now + tonumber(ARGV[2])
local found = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '')
redis.call('ZADD', KEYS[1], (found and found <= at) and found - 1 / 1024 or at, ARGV[1])
return 1
""")

# KEYS: the index of due conversations. ARGV: offset and count; the maximum delay of a check: entries beyond it were
# written before the clock was set back and are returned, too. Returns conversations and scores.
_CANDIDATES = script("""
local now = clock()
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2])
local room = tonumber(ARGV[2]) - #found / 2
if room > 0 then
    local far = '(' .. whole(now + tonumber(ARGV[3]))
    for _, part in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], far, '+inf', 'WITHSCORES', 'LIMIT', 0, room)) do
        table.insert(found, part)
    end
end
return found
""")

# KEYS: the index of due conversations. ARGV: for each conversation, its name, its score when it was read, and the time
# of the next check: "damaged" (unreadable) for a minute from now, or a blank if there is no pending work. An entry is
# removed only if two checks, a minute apart, found no pending work and its score did not change: an admission that
# entered the conversation before the first check has finished by then.
_LATER = script("""
local again = clock() + 60000 + 0.5
for i = 1, #ARGV, 3 do
    local found = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if found and tonumber(found) == tonumber(ARGV[i + 1]) then
        if ARGV[i + 2] == 'damaged' then
            redis.call('ZADD', KEYS[1], clock() + 60000, ARGV[i])
        elseif ARGV[i + 2] ~= '' then
            redis.call('ZADD', KEYS[1], ARGV[i + 2], ARGV[i])
        elseif tonumber(found) % 1 == 0.5 then
            redis.call('ZREM', KEYS[1], ARGV[i])
        else
            redis.call('ZADD', KEYS[1], again, ARGV[i])
        end
    end
end
return 1
""")

# KEYS: the index of all conversations. ARGV: the minimum age of an entry to be removed, and the conversations that no
# longer exist.
_GONE = script("""
local before = clock() - tonumber(ARGV[1])
for i = 2, #ARGV do
    local entered = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if entered and tonumber(entered) < before then
        redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
return 1
""")


def keys(conversation_id: str) -> list[str]:
    """Return a conversation's keys: its fields, its inbox, the ids of its entries, and their order.

    The hash tag in braces puts them into the cluster slot of the conversation's log.
    """
    state = f"runs:{{{encoded(conversation_id)}}}"
    return [state, f"{state}:inbox", f"{state}:ids", f"{state}:order"]


class RedisIndex:
    """The part of the run store that finds conversations. An operation that may create pending work enters it first."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def _enter(self, conversation_id: str, due_in_s: float) -> None:
        """Schedule a check of the conversation within `due_in_s` seconds."""
        workspace = workspace_of(conversation_id)
        arguments = [encoded(conversation_id), int(due_in_s * 1000), workspace]
        await self._client.run(ENTER, [_due(workspace), ALL, _WORKSPACES], arguments)

    async def due(self, workspace: str, most: int) -> list[str]:
        """See `RunStore.due`."""
        found: list[tuple[float, str]] = []
        seen: set[bytes] = set()
        with self._client.keep_open():
            while len(found) < most:
                page = await self._client.run(_CANDIDATES, [_due(workspace)], [len(found), _PAGE, _FAR_MS])
                # An entry that is due late, or by the clock of another server, is returned again.
                entries = [entry for entry in zip(page[::2], page[1::2], strict=True) if entry[0] not in seen]
                if not entries:
                    break
                seen.update(name for name, _ in entries)
                due, away = await self._checked(workspace, entries)
                found += due
                if len(page) < 2 * _PAGE or away:
                    break
        return [conversation_id for _, conversation_id in sorted(found)[:most]]

    async def conversations(self) -> list[str]:
        """See `RunStore.conversations`; sorted by name."""
        with self._client.keep_open():
            return sorted(_id(name) for name, exists in await self._entered() if exists)

    async def unfinished(self) -> list[str]:
        """See `RunStore.unfinished`."""
        with self._client.keep_open():
            async with self._client.command():
                names = await self._client.redis.smembers(_WORKSPACES)
            found = []
            for workspace in sorted(name.decode(errors="replace") for name in names):
                async with self._client.command():
                    found += await self._client.redis.zrange(_due(workspace), 0, -1)
        return [_id(name) for name in found if _is_id(name)]

    async def idle_since(self, since: float) -> list[str]:
        """See `RunStore.idle_since`; the time of a conversation is that of its last entry."""
        async with self._client.command():
            names = await self._client.redis.zrangebyscore(ALL, "-inf", f"({since * 1000:.0f}")
        return [_id(name) for name in names if _is_id(name)]

    async def _is_watched(self, conversation_id: str) -> bool:
        """Return whether the conversation is in its workspace's index of due conversations."""
        async with self._client.command():
            index = _due(workspace_of(conversation_id))
            return await self._client.redis.zscore(index, encoded(conversation_id)) is not None

    async def delete_expired(self) -> None:
        """See `RunStore.delete_expired`: remove the conversations that no longer exist from the index."""
        with self._client.keep_open():
            gone = [name for name, exists in await self._entered() if not exists]
            for at in range(0, len(gone), _PAGE):
                await self._client.run(_GONE, [ALL], [_ENTERED_MS, *gone[at : at + _PAGE]])

    async def _checked(
        self, workspace: str, entries: Sequence[tuple[bytes, bytes]]
    ) -> tuple[list[tuple[float, str]], bool]:
        """Return the due conversations with the time since when they are due, and whether some were unreachable.

        Raises:
            StoreUnavailable: all were unreachable.
        """
        names = [_id(name) for name, _ in entries]
        checks = [self._client.run(_LOOK, keys(name), [int(MAX_DUE_IN_S * 1000)]) for name in names]
        found: list[Any] = await asyncio.gather(*checks, return_exceptions=True)
        due, later, away = [], list[Any](), None
        for name, entry, seen in zip(names, entries, found, strict=True):
            match seen:
                case [1, since]:
                    due.append((since, name))
                case [0, then]:
                    later += [*entry, then]
                case [-1, _]:
                    later += [*entry, ""]
                case StoreUnavailable():
                    away = seen
                case StoreError():
                    # Continue with the others; check this one again after a minute.
                    log.error("conversation.damaged", conversation=name, problem=str(seen))
                    later += [*entry, "damaged"]
                case BaseException():
                    raise seen
        if later:
            await self._client.run(_LATER, [_due(workspace)], later)
        if away is not None and all(isinstance(seen, BaseException) for seen in found):
            raise away
        return due, away is not None

    async def _entered(self) -> list[tuple[bytes, bool]]:
        """Return the names in the index of all conversations, and whether each conversation exists."""
        async with self._client.command():
            names = await self._client.redis.zrange(ALL, 0, -1)
        found = [(name, False) for name in names if not _is_id(name)]
        names = [name for name in names if _is_id(name)]
        for start in range(0, len(names), _PAGE):
            page = names[start : start + _PAGE]
            async with self._client.command(), self._client.redis.pipeline(transaction=False) as pipe:
                for name in page:
                    pipe.execute_command("EXISTS", *keys(_id(name)))
                found += [(name, count > 0) for name, count in zip(page, await pipe.execute(), strict=True)]
        return found


def _due(workspace: str) -> str:
    """Return the key of a workspace's index of due conversations; with one each, none delays another."""
    return f"runs:{{index}}:due:{encoded(workspace)}"


def _id(name: bytes) -> str:
    """Return the conversation that a member of the index names; bytes that are not UTF-8 are replaced."""
    return unquote(name.decode(errors="replace"))


def _is_id(name: bytes) -> bool:
    return encoded(_id(name)).encode() == name
