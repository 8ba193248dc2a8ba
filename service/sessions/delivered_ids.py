"""Lookup of message ids in conversation logs, with a cache so that no part of a log is read twice."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import UnreadableState
from orchestrator_interactive.interactions.rows import RowState
from orchestrator_interactive.interactions.states import UserMessageState, UserResponseState
from service.sessions.logged_ids import ids_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Segment, Tree

# Number of states per read.
_PAGE = 500
# Maximum number of logs in the cache; the least recently used ones are dropped.
_CACHED_LOGS = 100
# The types of states that can contain a message's row.
_WITH_IDS = frozenset(kind.__name__ for kind in (UserMessageState, UserResponseState, RowState))


@dataclass(frozen=True, slots=True)
class _Part:
    """A contiguous range of a segment that was read: states [start, stop), and the message ids in them."""

    start: int
    stop: int
    ids: frozenset[str] = frozenset()

    def is_of(self, segment: Segment) -> bool:
        """Return whether the range is still valid: states are immutable, but a log can be deleted and recreated."""
        return segment.base <= self.start and self.stop <= segment.end

    def with_read(self, start: int, stop: int, nodes: Collection[Node]) -> _Part:
        """Extend the range by adjacent states, before or after it."""
        new = {message_id for node in nodes for message_id in _ids_of(node)}
        return _Part(min(start, self.start), max(stop, self.stop), self.ids | new if new else self.ids)


def _ids_of(node: Node) -> tuple[str, ...]:
    if node.envelope["t"] in _WITH_IDS:
        with suppress(UnreadableState):
            return ids_in(node)
    return ()


class DeliveredIds:
    """Finds messages that are delivered: their ids are in a row of the log, on any branch.

    Reads a log backwards from its end until all ids are found. A search for absent ids, such as those of pending
    messages, reads the whole log once; later searches read only its new states.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._parts: dict[Key, dict[tuple[int, float], _Part]] = {}

    async def of(self, key: Key, ids: Collection[str]) -> frozenset[str]:
        """Return those of the message ids that are in the log.

        Raises:
            DamagedLog: its branches cannot be read.
            StoreError: the store cannot be used.
        """
        wanted = frozenset(ids)
        log = await self._store.load(key) if wanted else None
        if log is None:
            return frozenset()
        missing, before = wanted, self._parts.get(key, {})
        parts: dict[tuple[int, float], _Part] = {}
        for number, segment in _latest_first(log.tree):
            name = number, segment.created
            part = before.get(name)
            if part is None or not part.is_of(segment):
                part = _Part(segment.end, segment.end)
            parts[name] = part = await self._extended(key, number, segment, part, missing)
            missing -= part.ids
        self._cache(key, parts)
        return wanted - missing

    async def _extended(self, key: Key, number: int, segment: Segment, part: _Part, missing: frozenset[str]) -> _Part:
        """Extend the range to the segment's end, then towards its start, until no id is missing."""
        while part.stop < segment.end and missing - part.ids:
            stop = min(part.stop + _PAGE, segment.end)
            part = part.with_read(part.stop, stop, await self._store.read(key, number, part.stop, stop))
        while segment.base < part.start and missing - part.ids:
            start = max(part.start - _PAGE, segment.base)
            part = part.with_read(start, part.start, await self._store.read(key, number, start, part.start))
        return part

    def _cache(self, key: Key, parts: dict[tuple[int, float], _Part]) -> None:
        self._parts.pop(key, None)
        self._parts[key] = parts
        if len(self._parts) > _CACHED_LOGS:
            del self._parts[next(iter(self._parts))]


def _latest_first(tree: Tree) -> Iterator[tuple[int, Segment]]:
    for number in sorted(tree.segments, key=lambda each: (each != tree.current, -each)):
        yield number, tree.segments[number]
