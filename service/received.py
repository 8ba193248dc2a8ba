"""The messages that events brought, in documents of the run store, for apps whose reading Slack limits."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

from connector.events import edited_ts_of
from orchestrator_interactive.storage.retry import retrying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from orchestrator_interactive.storage.retry import StoreRetryPolicy
    from service.store.base import RunStore

# Kept of each channel, with its threads.
MOST, MOST_DAYS = 1_000, 30
_MOST_CHANNELS = 100_000
_MOST_BYTES = 16_000
_DAY_S = 86_400.0
_CHANNELS = "received"
# When a message was deleted. It is no longer read, but known until no event of an earlier version can arrive.
_DELETED = "deleted_s"
_EVENTS_WITHIN_S = 3_600.0


class StoredMessages:
    """Implements `connector.slack_api.received.ReceivedMessages`. Each channel is a collection, listed in another one.

    Args:
        days_of: returns for how many days the messages of a channel are kept.
    """

    def __init__(
        self,
        store: RunStore,
        retry: StoreRetryPolicy,
        days_of: Callable[[str], int] = lambda _: MOST_DAYS,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._unretried = store
        self._store = retrying(store, retry)
        self._days_of = days_of
        self._now_s = now_s
        # Channels that are in the list.
        self._listed: set[str] = set()

    async def put(self, team: str, channel: str, message: Mapping[str, Any]) -> None:
        """Store a version of a message; see the protocol. Blocks and attachments of a very large one are left out."""
        if len(json.dumps(message)) > _MOST_BYTES:
            text = str(message.get("text") or "")[: _MOST_BYTES // 2]
            large = ("blocks", "attachments", "files", "metadata")
            message = {**{name: value for name, value in message.items() if name not in large}, "text": text}
        await self._put(f"{team}:{channel}", message)

    async def delete(self, team: str, channel: str, ts: str) -> None:
        """Delete a message, and store for an hour that it was deleted; see the protocol."""
        place, now_s = f"{team}:{channel}", self._now_s()
        if now_s - float(ts) < _EVENTS_WITHIN_S or await self._version(place, ts):
            await self._put(place, {"ts": ts, _DELETED: now_s})

    async def of_channel(self, team: str, channel: str) -> list[dict[str, Any]]:
        """Return the messages of a channel and its threads, oldest first."""
        return await self._of(f"{team}:{channel}")

    async def by(self, user: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield the messages of a person, each with its channel (`team:channel`)."""
        for place in await self._store.documents(_CHANNELS):
            for message in await self._of(place):
                if message.get("user") == user:
                    yield place, message

    async def erase(self, user: str) -> int:
        """Delete the messages of a person; return their number."""
        found = [(*place.split(":", 1), str(message["ts"])) async for place, message in self.by(user)]
        for team, channel, ts in found:
            await self.delete(team, channel, ts)
        return len(found)

    async def delete_expired(self) -> None:
        """Delete the messages that are too old, and the marks of deleted ones.

        Raises:
            StoreError: the store cannot be used.
        """
        for place in await self._unretried.documents(_CHANNELS):
            before_s, deleted_before_s = self._before_s(place), self._now_s() - _EVENTS_WITHIN_S
            for name, message in (await self._unretried.documents(_collection(place))).items():
                if float(name) < before_s or message.get(_DELETED, math.inf) < deleted_before_s:
                    await self._unretried.delete_document(_collection(place), name)

    async def _put(self, place: str, message: Mapping[str, Any]) -> None:
        """Store a version of a message, unless a later one is stored."""
        if place not in self._listed:
            await self._store.put_document(_CHANNELS, place, {}, _MOST_CHANNELS)
            self._listed.add(place)
        collection, ts, known = _collection(place), str(message["ts"]), dict[str, Any]()
        while not await self._store.replace_document(collection, ts, known, message, MOST):
            found = await self._version(place, ts)
            if _version_s(found) > _version_s(message):
                return
            if found == known:  # the stored one is unreadable
                await self._store.delete_document(collection, ts)
            known = found

    async def _version(self, place: str, ts: str) -> dict[str, Any]:
        """Return the stored version of a message; blank: there is none."""
        found = await self._store.documents(_collection(place), ts)
        return found.get(ts, {})

    async def _of(self, place: str) -> list[dict[str, Any]]:
        found = await self._store.documents(_collection(place))
        before_s = self._before_s(place)
        return [found[ts] for ts in sorted(found, key=float) if float(ts) >= before_s and _DELETED not in found[ts]]

    def _before_s(self, place: str) -> float:
        return self._now_s() - min(self._days_of(place), MOST_DAYS) * _DAY_S


def _version_s(message: Mapping[str, Any]) -> float:
    """Return when a version of a message was made; 0: it was never edited."""
    is_last = _DELETED in message or message.get("subtype") == "tombstone"
    return math.inf if is_last else float(edited_ts_of(message) or 0)


def _collection(place: str) -> str:
    return f"{_CHANNELS}:{place}"
