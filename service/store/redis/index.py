"""Which conversations there are in Redis, and which of them may be due: apart from them, as they lie on many servers.

A conversation is entered before anything happens to it, and taken out long after nothing is left to do; whoever dies
between two steps leaves an entry too many, and never one too few. So each entry is looked at before it counts.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import structlog

from orchestrator_interactive.storage.errors import StoreAway, StoreError
from service.store.base import workspace_of
from service.store.redis import index_scripts as scripts
from service.store.serialization import LONGEST_REST_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.storage.redis import RedisClient

log = structlog.get_logger(__name__)

_ALL = "runs:{index}:all"
# What a conversation consists of at the most.
_KEYS = 4
# Of conversations that are looked at at a time.
_PAGE = 100
# Whoever has entered a conversation has admitted something to it long before this is over, in milliseconds.
_ENTERED_MS = 60 * 60 * 1000
# Entries that are to be looked at later than this were entered before the server's clock was set back, or have an
# uncommonly long lease.
_FAR_MS = 2 * 60 * 1000


def keys(conversation_id: str) -> list[str]:
    """Of a conversation: its fields, its inbox, the ids of its entries, and these in order.

    What stands in braces decides where they lie on a cluster: beside the conversation's log.
    """
    state = f"runs:{{{_name(conversation_id)}}}"
    return [state, f"{state}:inbox", f"{state}:ids", f"{state}:order"]


async def refuse_unwritable(client: RedisClient) -> None:
    """Raise StoreError where the server cannot be written."""
    async with client.asking():
        await client.redis.zrem(_ALL, "")


class RedisIndex:
    """The conversations by name; each step that may give one something to do begins with `enter`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def enter(self, conversation_id: str, rest_s: float) -> None:
        """Have the conversation looked at, at the latest after so many seconds."""
        arguments = [_name(conversation_id), int(rest_s * 1000)]
        await self._client.run(scripts.ENTER, [_due(workspace_of(conversation_id)), _ALL], arguments)

    async def due(self, workspace: str, most: int) -> list[str]:
        """See `RunStore.due`."""
        found: list[tuple[float, str]] = []
        with self._client.underway():
            while len(found) < most:
                page = await self._client.run(scripts.CANDIDATES, [_due(workspace)], [len(found), _PAGE, _FAR_MS])
                entries = list(zip(page[::2], page[1::2], strict=True))
                due, away = await self._looked_at(workspace, entries)
                found += due
                if len(entries) < _PAGE or away:
                    break
        return [conversation_id for _, conversation_id in sorted(found)[:most]]

    async def all(self) -> list[str]:
        """The conversations of which anything is there, in the order of their names."""
        with self._client.underway():
            return sorted(_id(name) for name, is_there in await self._entered() if is_there)

    async def rested(self, since_ms: float) -> list[str]:
        """Those that were entered last before then."""
        async with self._client.asking():
            names = await self._client.redis.zrangebyscore(_ALL, "-inf", f"({since_ms:.0f}")
        return [_id(name) for name in names if _is_id(name)]

    async def is_watched(self, conversation_id: str) -> bool:
        """Whether it is looked at whether it is due."""
        async with self._client.asking():
            index = _due(workspace_of(conversation_id))
            return await self._client.redis.zscore(index, _name(conversation_id)) is not None

    async def tidy(self) -> None:
        """Take out the conversations that are not there any more."""
        with self._client.underway():
            gone = [name for name, is_there in await self._entered() if not is_there]
            for at in range(0, len(gone), _PAGE):
                await self._client.run(scripts.GONE, [_ALL], [_ENTERED_MS, *gone[at : at + _PAGE]])

    async def _looked_at(
        self, workspace: str, entries: Sequence[tuple[bytes, bytes]]
    ) -> tuple[list[tuple[float, str]], bool]:
        """Those that are due, with the time since when they are; and whether some could not be looked at."""
        names = [_id(name) for name, _ in entries]
        looks = [self._client.run(scripts.LOOK, keys(name), [int(LONGEST_REST_S * 1000)]) for name in names]
        found: list[Any] = await asyncio.gather(*looks, return_exceptions=True)
        due, later = [], list[Any]()
        for name, entry, seen in zip(names, entries, found, strict=True):
            match seen:
                case [1, since]:
                    due.append((since, name))
                case [0, then]:
                    later += [*entry, then]
                case [-1, _]:
                    later += [*entry, ""]
                case StoreError() if not isinstance(seen, StoreAway):
                    # The others are looked at anyway, and this one again a minute later.
                    log.error("conversation.damaged", conversation=name, problem=str(seen))
                    later += [*entry, "damaged"]
        if later:
            await self._client.run(scripts.LATER, [_due(workspace)], later)
        return due, self._is_away(found)

    def _is_away(self, found: Sequence[Any]) -> bool:
        """Whether a part of the store is away.

        Raises:
            StoreAway: all of it is.
            Exception: what else went wrong.
        """
        problems = [each for each in found if isinstance(each, BaseException)]
        for problem in problems:
            if not isinstance(problem, StoreError) or (isinstance(problem, StoreAway) and len(problems) == len(found)):
                raise problem
        return any(isinstance(problem, StoreAway) for problem in problems)

    async def _entered(self) -> list[tuple[bytes, bool]]:
        """The conversations that were entered, and whether anything of them is there."""
        async with self._client.asking():
            names = await self._client.redis.zrange(_ALL, 0, -1)
        found = [(name, False) for name in names if not _is_id(name)]
        names = [name for name in names if _is_id(name)]
        for start in range(0, len(names), _PAGE):
            page = names[start : start + _PAGE]
            async with self._client.asking(), self._client.redis.pipeline(transaction=False) as pipe:
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
    """As the logs name it, too."""
    return quote(conversation_id, safe=":")
