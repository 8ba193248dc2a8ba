"""Which messages the logs of conversations have: what was read of a log is not read again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import UnreadableState
from orchestrator_interactive.interactions.states import UserMessageState, UserResponseState
from orchestrator_interactive.modules.context_stack.states import RowState
from service.sessions.logged_ids import ids_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Segment, Tree

# Of states that are read at a time.
_PAGE = 500
# Of logs of which it is known what was read: those that were asked for last.
_REMEMBERED = 100
# The types of states that may hold the row of a message.
_WITH_IDS = frozenset(kind.__name__ for kind in (UserMessageState, UserResponseState, RowState))


@dataclass(frozen=True, slots=True)
class _Part:
    """What was read of a segment, at a stretch: states [start, stop), and the ids of the messages in them."""

    start: int
    stop: int
    ids: frozenset[str] = frozenset()

    def is_of(self, segment: Segment) -> bool:
        """Whether it still is: states are never changed, but a log may be removed, and begun anew."""
        return segment.base <= self.start and self.stop <= segment.end

    def with_read(self, start: int, stop: int, nodes: Collection[Node]) -> _Part:
        """With states that stand right before it, or right behind it."""
        new = {message_id for node in nodes for message_id in _ids_of(node)}
        return _Part(min(start, self.start), max(stop, self.stop), self.ids | new if new else self.ids)


def _ids_of(node: Node) -> tuple[str, ...]:
    if node.envelope["t"] in _WITH_IDS:
        with suppress(UnreadableState):
            return ids_in(node)
    return ()


class DeliveredIds:
    """Tells of messages whether a log has them in a row, on whatever branch.

    A log is read from its end, and no further than until all are found that are asked for. One that is asked for
    messages which it has not, as those that wait, is read to its beginning; but once, and then only what is new in it.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._parts: dict[Key, dict[tuple[int, float], _Part]] = {}

    async def of(self, key: Key, ids: Collection[str]) -> frozenset[str]:
        """Those of the messages that the log has.

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
            parts[name] = part = await self._read_on(key, number, segment, part, missing)
            missing -= part.ids
        self._remember(key, parts)
        return wanted - missing

    async def _read_on(self, key: Key, number: int, segment: Segment, part: _Part, missing: frozenset[str]) -> _Part:
        """The part with what has come since, and with what comes before it for as long as any is missing."""
        while part.stop < segment.end and missing - part.ids:
            stop = min(part.stop + _PAGE, segment.end)
            part = part.with_read(part.stop, stop, await self._store.read(key, number, part.stop, stop))
        while segment.base < part.start and missing - part.ids:
            start = max(part.start - _PAGE, segment.base)
            part = part.with_read(start, part.start, await self._store.read(key, number, start, part.start))
        return part

    def _remember(self, key: Key, parts: dict[tuple[int, float], _Part]) -> None:
        self._parts.pop(key, None)
        self._parts[key] = parts
        if len(self._parts) > _REMEMBERED:
            del self._parts[next(iter(self._parts))]


def _latest_first(tree: Tree) -> Iterator[tuple[int, Segment]]:
    for number in sorted(tree.segments, key=lambda each: (each != tree.current, -each)):
        yield number, tree.segments[number]
