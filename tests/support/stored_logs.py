"""Short ways to write logs and to look at them, as a stack does it at its store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator_interactive.interactions.records import Flow, Key, Node
from orchestrator_interactive.interactions.stores.base import Change, LogStore
from orchestrator_interactive.interactions.tree import Tree

KEY = Key("T1:C1:1700000000.000100", "alpha")
TREE = Tree.empty(1000.0)


def state(index: int, segment: int = 0, *, ts: float = 1000.0, kind: str = "Said", data: str | bytes = "{}") -> Node:
    """A state as a stack would write it; its episode tells it from others in its place."""
    is_packed = isinstance(data, bytes)
    return Node(segment, index, {"v": 1, "t": kind, "ts": ts, "data": data, "compressed": is_packed}, 1, Flow(kind))


def states(start: int, stop: int, segment: int = 0) -> list[Node]:
    return [state(index, segment, ts=1000.0 + index) for index in range(start, stop)]


async def plant(store: LogStore, key: Key, nodes: Sequence[Node] = (), *, written: float = 1000.0) -> None:
    """Begin a log with these states."""
    await store.commit(key, Change(0, len(nodes), written, replace(TREE.with_end(len(nodes), written)), nodes))


async def every_node(store: LogStore, key: Key, longest: int) -> list[Node]:
    """Return the stored states of all segments, including unreachable ones; `longest` is the longest segment's end."""
    log = await store.load(key)
    numbers = range(log.tree.next_segment if log else 0)
    return [node for number in numbers for node in await store.read(key, number, 0, longest)]


async def indices(store: LogStore, key: Key, start: int = 0, stop: int = 100, segment: int = 0) -> list[int]:
    """Return the indices of the states in a segment."""
    return [node.index for node in await store.read(key, segment, start, stop)]
