"""Indexes of all conversations and of due conversations in Redis, apart from the conversations' own cluster slots.

A conversation is entered into the indexes before it changes, and removed long after its last pending work. A process
that dies in between leaves a superfluous entry, never a missing one. Entries are therefore verified before use.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import structlog

from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.store.base import workspace_of
from service.store.redis import index_scripts as scripts
from service.store.serialization import MAX_DUE_IN_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.storage.redis import RedisClient

log = structlog.get_logger(__name__)

_ALL = "runs:{index}:all"
# Number of keys of a conversation.
_KEYS = 4
# Number of conversations per request.
_PAGE = 100
# Upper bound of the time between entering a conversation and writing to it, in milliseconds.
_ENTERED_MS = 60 * 60 * 1000
# Entries due later than this, in milliseconds, were written before the server's clock was set back, or have an
# unusually long lease.
_FAR_MS = 2 * 60 * 1000


def keys(conversation_id: str) -> list[str]:
    """Return a conversation's keys: its fields, its inbox, the ids of its entries, and their order.

    The hash tag in braces puts them into the cluster slot of the conversation's log.
    """
    state = f"runs:{{{_name(conversation_id)}}}"
    return [state, f"{state}:inbox", f"{state}:ids", f"{state}:order"]


async def refuse_unwritable(client: RedisClient) -> None:
    """Raise StoreError if the server is not writable."""
    async with client.command():
        await client.redis.zrem(_ALL, "")


class RedisIndex:
    """The conversations by name. Each operation that may create pending work must call `enter` first."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def enter(self, conversation_id: str, due_in_s: float) -> None:
        """Schedule a check of the conversation within `due_in_s` seconds."""
        arguments = [_name(conversation_id), int(due_in_s * 1000)]
        await self._client.run(scripts.ENTER, [_due(workspace_of(conversation_id)), _ALL], arguments)

    async def due(self, workspace: str, most: int) -> list[str]:
        """See `RunStore.due`."""
        found: list[tuple[float, str]] = []
        with self._client.keep_open():
            while len(found) < most:
                page = await self._client.run(scripts.CANDIDATES, [_due(workspace)], [len(found), _PAGE, _FAR_MS])
                entries = list(zip(page[::2], page[1::2], strict=True))
                due, away = await self._checked(workspace, entries)
                found += due
                if len(entries) < _PAGE or away:
                    break
        return [conversation_id for _, conversation_id in sorted(found)[:most]]

    async def all(self) -> list[str]:
        """Return the existing conversations, sorted by name."""
        with self._client.keep_open():
            return sorted(_id(name) for name, exists in await self._entered() if exists)

    async def idle_since(self, since_ms: float) -> list[str]:
        """Return the conversations that were last entered before then."""
        async with self._client.command():
            names = await self._client.redis.zrangebyscore(_ALL, "-inf", f"({since_ms:.0f}")
        return [_id(name) for name in names if _is_id(name)]

    async def is_watched(self, conversation_id: str) -> bool:
        """Return whether the conversation is in its workspace's index of due conversations."""
        async with self._client.command():
            index = _due(workspace_of(conversation_id))
            return await self._client.redis.zscore(index, _name(conversation_id)) is not None

    async def delete_expired(self) -> None:
        """Remove the conversations that no longer exist from the index."""
        with self._client.keep_open():
            gone = [name for name, exists in await self._entered() if not exists]
            for at in range(0, len(gone), _PAGE):
                await self._client.run(scripts.GONE, [_ALL], [_ENTERED_MS, *gone[at : at + _PAGE]])

    async def _checked(
        self, workspace: str, entries: Sequence[tuple[bytes, bytes]]
    ) -> tuple[list[tuple[float, str]], bool]:
        """Return the due conversations with the time since when they are due, and whether some were unreachable."""
        names = [_id(name) for name, _ in entries]
        checks = [self._client.run(scripts.LOOK, keys(name), [int(MAX_DUE_IN_S * 1000)]) for name in names]
        found: list[Any] = await asyncio.gather(*checks, return_exceptions=True)
        due, later = [], list[Any]()
        for name, entry, seen in zip(names, entries, found, strict=True):
            match seen:
                case [1, since]:
                    due.append((since, name))
                case [0, then]:
                    later += [*entry, then]
                case [-1, _]:
                    later += [*entry, ""]
                case StoreError() if not isinstance(seen, StoreUnavailable):
                    # Continue with the others; check this one again after a minute.
                    log.error("conversation.damaged", conversation=name, problem=str(seen))
                    later += [*entry, "damaged"]
        if later:
            await self._client.run(scripts.LATER, [_due(workspace)], later)
        return due, self._is_away(found)

    def _is_away(self, found: Sequence[Any]) -> bool:
        """Return whether a part of the store is unreachable.

        Raises:
            StoreUnavailable: all of it is unreachable.
            Exception: any other error.
        """
        problems = [each for each in found if isinstance(each, BaseException)]
        for problem in problems:
            if not isinstance(problem, StoreError) or (
                isinstance(problem, StoreUnavailable) and len(problems) == len(found)
            ):
                raise problem
        return any(isinstance(problem, StoreUnavailable) for problem in problems)

    async def _entered(self) -> list[tuple[bytes, bool]]:
        """Return the names in the index of all conversations, and whether each conversation exists."""
        async with self._client.command():
            names = await self._client.redis.zrange(_ALL, 0, -1)
        found = [(name, False) for name in names if not _is_id(name)]
        names = [name for name in names if _is_id(name)]
        for start in range(0, len(names), _PAGE):
            page = names[start : start + _PAGE]
            async with self._client.command(), self._client.redis.pipeline(transaction=False) as pipe:
                for name in page:
                    for key in keys(_id(name)):
                        pipe.exists(key)
                there = await pipe.execute()
            found += [(name, any(there[at : at + _KEYS])) for at, name in zip(count(0, _KEYS), page, strict=False)]
        return found


def _due(workspace: str) -> str:
    """Return the key of a workspace's index of due conversations; with one each, none delays another."""
    return f"runs:{{index}}:due:{_name(workspace)}"


def _id(name: bytes) -> str:
    """Return the conversation that a member of the index names; bytes that are not UTF-8 are replaced."""
    return unquote(name.decode(errors="replace"))


def _is_id(name: bytes) -> bool:
    return _name(_id(name)).encode() == name


def _name(conversation_id: str) -> str:
    """Return the name of a conversation in keys, as the log store encodes it."""
    return quote(conversation_id, safe=":")
