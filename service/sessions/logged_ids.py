"""The ids of the delivered messages in conversation logs: a cached search, and a complete list for audits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import NewerState, UnknownState, UnreadableState
from orchestrator_interactive.interactions.rows import RowState, row_of
from orchestrator_interactive.interactions.serializers import decode
from orchestrator_interactive.interactions.states import UserMessageState, UserResponseState
from orchestrator_interactive.transcript.rows import delivered_ids_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores import LogStore
    from orchestrator_interactive.interactions.tree import Segment, Tree

# Number of states per read.
_PAGE = 500
# Maximum number of logs in the cache; the least recently used ones are dropped.
_CACHED_LOGS = 100
# The types of states that can contain a message's row.
_WITH_IDS = frozenset(kind.__name__ for kind in (UserMessageState, UserResponseState, RowState))


@dataclass(frozen=True, slots=True)
class LoggedIds:
    """The ids of messages in a log.

    Args:
        every: the ids on all branches, including abandoned ones.
        branches: the ids in log order, by branch name.
        is_whole: whether no segment was pruned and all state types are known, so that no id can be missing.
        damaged: indices of missing or unreadable states, by the name of a branch that contains them.
    """

    every: frozenset[str]
    branches: Mapping[str, tuple[str, ...]]
    is_whole: bool
    damaged: Mapping[str, tuple[int, ...]]


async def logged_ids(store: LogStore, key: Key) -> LoggedIds | None:
    """Read the ids of the messages in a log; `None` if there is no log.

    Raises:
        DamagedLog: its branches cannot be read.
        StoreError: the store cannot be used.
    """
    log = await store.load(key)
    if log is None:
        return None
    tree = log.tree
    # A pruned branch has lost its name or its segment.
    is_whole = len(tree.segments) == tree.next_segment and all(each.name for each in tree.segments.values())
    segments = {
        number: await _read_segment(store, key, number, segment.base, segment.end)
        for number, segment in tree.segments.items()
    }
    branches = {branch.name: _ids_on(tree, branch.name, segments) for branch in tree.branches()}
    damaged = {
        tree.segments[number].name or f"{number} (pruned)": tuple(found.damaged)
        for number, found in segments.items()
        if found.damaged
    }
    every = frozenset(id_ for found in segments.values() for ids in found.ids.values() for id_ in ids)
    return LoggedIds(every, branches, is_whole and not any(each.has_unknown for each in segments.values()), damaged)


@dataclass(slots=True)
class _Segment:
    """The message ids in a segment by state index, and its unreadable and unknown states."""

    ids: dict[int, tuple[str, ...]] = field(default_factory=dict)
    damaged: list[int] = field(default_factory=list)
    has_unknown: bool = False


async def _read_segment(store: LogStore, key: Key, segment: int, base: int, end: int) -> _Segment:
    found = _Segment()
    for start in range(base, end, _PAGE):
        stop = min(start + _PAGE, end)
        nodes = {node.index: node for node in await store.read(key, segment, start, stop)}
        for index in range(start, stop):
            try:
                ids = ids_in(nodes[index])
            except (UnknownState, NewerState):
                found.has_unknown = True
            except (UnreadableState, KeyError):
                found.damaged.append(index)
            else:
                found.ids[index] = ids
    return found


def ids_in(node: Node) -> tuple[str, ...]:
    """Return the ids of the messages in a state.

    Raises:
        UnreadableState: the state is damaged.
    """
    row = row_of(decode(node.envelope))
    return tuple(delivered_ids_in(row)) if row is not None else ()


def _ids_on(tree: Tree, branch: str, segments: Mapping[int, _Segment]) -> tuple[str, ...]:
    number = tree.named(branch)
    return tuple(
        id_
        for piece in tree.pieces(number, 0, tree.segments[number].end)
        for index in range(piece.start, piece.stop)
        for id_ in segments[piece.segment].ids.get(index, ())
    )


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
