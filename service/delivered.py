"""The messages that a conversation's log says were delivered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import Unreadable
from orchestrator_interactive.interactions.serializers import decode
from orchestrator_interactive.interactions.states import UserMessageState, UserResponseState
from orchestrator_interactive.modules.context_stack.rows import row_of
from orchestrator_interactive.modules.context_stack.states import RowState
from orchestrator_interactive.rows import delivered_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Tree

# Of states that are read at a time.
_PAGE = 500
# The types of states that may hold the row of a message.
_WITH_IDS = frozenset(kind.__name__ for kind in (UserMessageState, UserResponseState, RowState))


@dataclass(frozen=True, slots=True)
class LoggedIds:
    """The ids of messages in a log.

    Args:
        every: of all its branches, those that were left behind among them.
        branches: by the name of a branch, in the order in which they stand there.
        is_whole: whether all that was ever written is there and can be read.
    """

    every: frozenset[str]
    branches: Mapping[str, tuple[str, ...]]
    is_whole: bool


async def logged_ids(store: LogStore, key: Key) -> LoggedIds | None:
    """The ids of the messages in a log; `None`: there is none.

    Raises:
        DamagedLog: its branches cannot be read.
        StoreError: the store cannot be used.
    """
    log = await store.load(key)
    if log is None:
        return None
    segments: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
    tree = log.tree
    # A branch that was pruned has lost its name, or its segment.
    is_whole = len(tree.segments) == tree.next_segment and all(each.name for each in tree.segments.values())
    for number, segment in tree.segments.items():
        found, count = await _read(store, key, number, segment.base, segment.end)
        segments[number] = found
        is_whole = is_whole and count == segment.end - segment.base
    branches = {branch.name: _ids_on(tree, branch.name, segments) for branch in tree.branches()}
    every = frozenset(id_ for found in segments.values() for _, ids in found for id_ in ids)
    return LoggedIds(every, branches, is_whole)


async def delivered_of(store: LogStore, key: Key, ids: Collection[str]) -> frozenset[str]:
    """Those of the messages that a log has in a row, on whatever branch; it is read from its end, while any is missing.

    Raises:
        DamagedLog: its branches cannot be read.
        StoreError: the store cannot be used.
    """
    wanted = frozenset(ids)
    log = await store.load(key) if wanted else None
    found: frozenset[str] = frozenset()
    if log is None:
        return found
    tree = log.tree
    for number in sorted(tree.segments, key=lambda each: (each != tree.current, -each)):
        start, stop = tree.segments[number].base, tree.segments[number].end
        while start < stop and found != wanted:
            page = max(stop - _PAGE, start)
            for node in await store.read(key, number, page, stop):
                if node.envelope["t"] in _WITH_IDS:
                    with suppress(Unreadable):
                        found |= wanted.intersection(_ids_in(node))
            stop = page
    return found


async def _read(
    store: LogStore, key: Key, segment: int, base: int, end: int
) -> tuple[list[tuple[int, tuple[str, ...]]], int]:
    """The ids in a segment, each with the index of its state; and how many states of it can be read."""
    found: list[tuple[int, tuple[str, ...]]] = []
    count = 0
    for start in range(base, end, _PAGE):
        for node in await store.read(key, segment, start, min(start + _PAGE, end)):
            try:
                ids = _ids_in(node)
            except Unreadable:
                continue
            count += 1
            if ids:
                found.append((node.index, ids))
    return found, count


def _ids_in(node: Node) -> tuple[str, ...]:
    """The ids of the messages in a state.

    Raises:
        Unreadable: it is damaged.
    """
    row = row_of(decode(node.envelope))
    return tuple(delivered_in(row)) if row is not None else ()


def _ids_on(tree: Tree, branch: str, segments: Mapping[int, list[tuple[int, tuple[str, ...]]]]) -> tuple[str, ...]:
    number = tree.named(branch)
    return tuple(
        id_
        for piece in tree.pieces(number, 0, tree.segments[number].end)
        for index, ids in segments[piece.segment]
        if piece.start <= index < piece.stop
        for id_ in ids
    )
