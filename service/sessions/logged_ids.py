"""The ids of the delivered messages in a conversation's log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import NewerState, UnknownState, UnreadableState
from orchestrator_interactive.interactions.rows import row_of
from orchestrator_interactive.interactions.serializers import decode
from orchestrator_interactive.transcript.rows import delivered_ids_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Tree

# Number of states per read.
_PAGE = 500


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
