"""A store that loses some states, and records the ranges that are read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from orchestrator_interactive.interactions.records import Key, Node
from orchestrator_interactive.interactions.stores.base import Change
from orchestrator_interactive.interactions.stores.memory import MemoryStore


class FaultInjectingStore(MemoryStore):
    """Loses the states at the indices `lost`; those at `unknown` have an unknown type.

    `reads` are the ranges that were read.
    """

    def __init__(self, lost: Collection[int] = (), *, unknown: Collection[int] = ()) -> None:
        super().__init__()
        self.lost, self.unknown = lost, unknown
        self.reads: list[tuple[int, int]] = []

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        self.reads.append((start, stop))
        there = [node for node in await super().read(key, segment, start, stop) if node.index not in self.lost]
        return [self._strange(node) if node.index in self.unknown else node for node in there]

    @staticmethod
    def _strange(node: Node) -> Node:
        return replace(node, envelope={**node.envelope, "t": "NeverHeardOfState"})


class SuspendingStore(MemoryStore):
    """Suspends its caller at each commit, as a store over a network does."""

    async def commit(self, key: Key, change: Change) -> None:
        await asyncio.sleep(0)
        await super().commit(key, change)
