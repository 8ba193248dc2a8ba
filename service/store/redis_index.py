"""Which conversations there are in Redis, and which of them may be due: apart from them, as they lie on many servers.

A conversation is entered before anything happens to it, and taken out long after nothing is left to do; whoever dies
between two steps leaves an entry too many, and never one too few. So each entry is looked at before it counts.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from orchestrator_interactive.interactions.errors import StoreAway
from service.store import redis_scripts as scripts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.interactions.stores.redis_client import RedisClient

_DUE, _ALL = "runs:{index}:due", "runs:{index}:all"
# Of conversations that are looked at at a time.
_PAGE = 100
# Whoever has entered a conversation has admitted something to it long before this is over, in milliseconds.
_ENTERED_MS = 60 * 60 * 1000


def keys(conversation_id: str) -> list[str]:
    """Of a conversation: its fields, its inbox, the ids of its entries, and these in order.

    What stands in braces decides where they lie on a cluster: beside the conversation's log.
    """
    state = f"runs:{{{_name(conversation_id)}}}"
    return [state, f"{state}:inbox", f"{state}:ids", f"{state}:order"]


async def refuse_unwritable(client: RedisClient) -> None:
    """Raise StoreError where the server cannot be written."""
    async with client.asking():
        await client.redis.zrem(_DUE, "")


class RedisIndex:
    """The conversations by name; each step that may give one something to do begins with `enter`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def enter(self, conversation_id: str, rest_s: float) -> None:
        """Have the conversation looked at, at the latest after so many seconds."""
        await self._client.run(scripts.ENTER, [_DUE, _ALL], [_name(conversation_id), int(rest_s * 1000)])

    async def due(self, most: int) -> list[str]:
        """Conversations that have something to do and no valid lease, those first that have waited longest."""
        found: list[tuple[float, str]] = []
        with self._client.underway():
            while len(found) < most:
                page = await self._client.run(scripts.CANDIDATES, [_DUE], [len(found), _PAGE])
                entries = list(zip(page[::2], page[1::2], strict=True))
                due, away = await self._looked_at(entries)
                found += due
                if len(entries) < _PAGE or away:
                    break
        return [conversation_id for _, conversation_id in sorted(found)[:most]]

    async def all(self) -> list[str]:
        """The conversations that there are, in the order of their names."""
        with self._client.underway():
            async with self._client.asking():
                entries = await self._client.redis.zrange(_ALL, 0, -1, withscores=True)
            there = await self._there([name for name, _ in entries])
            old = time.time() * 1000 - _ENTERED_MS
            gone = [name for name, entered in entries if name not in there and entered < old]
            if gone:
                async with self._client.asking():
                    await self._client.redis.zrem(_ALL, *gone)
        return sorted(unquote(name.decode()) for name in there)

    async def _looked_at(self, entries: Sequence[tuple[bytes, bytes]]) -> tuple[list[tuple[float, str]], bool]:
        """Those that are due, with the time since when they are; and whether some could not be looked at."""
        names = [unquote(name.decode()) for name, _ in entries]
        looks = [self._client.run(scripts.LOOK, keys(name)) for name in names]
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
        if later:
            await self._client.run(scripts.LATER, [_DUE], later)
        return due, self._is_away(found)

    def _is_away(self, found: Sequence[Any]) -> bool:
        """Whether a part of the store is away.

        Raises:
            StoreAway: all of it is.
            Exception: what else went wrong.
        """
        problems = [each for each in found if isinstance(each, BaseException)]
        for problem in problems:
            if not isinstance(problem, StoreAway) or len(problems) == len(found):
                raise problem
        return bool(problems)

    async def _there(self, names: Sequence[bytes]) -> set[bytes]:
        """Those of the conversations that there are."""
        there: set[bytes] = set()
        for at in range(0, len(names), _PAGE):
            page = names[at : at + _PAGE]
            async with self._client.asking(), self._client.redis.pipeline(transaction=False) as pipe:
                for name in page:
                    pipe.hlen(keys(unquote(name.decode()))[0])
                sizes = await pipe.execute()
            there.update(name for name, size in zip(page, sizes, strict=True) if size)
        return there


def _name(conversation_id: str) -> str:
    """As the logs name it, too."""
    return quote(conversation_id, safe=":")
