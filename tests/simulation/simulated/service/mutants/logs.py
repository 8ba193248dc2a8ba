"""Log stores that break what a log store promises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.stores.memory import MemoryStore

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores.base import Change


class WithoutFences(MemoryStore):
    """Lets everybody write who has looked."""

    async def commit(self, key: Key, change: Change) -> None:
        self._fences.pop(key, None)
        log = await self.load(key)
        await super().commit(key, replace(change, version=log.version if log else 0))

    async def fence(self, key: Key, token: int) -> None:
        """Nobody is kept out."""


class LosesAnswers(MemoryStore):
    """Has written nothing when a process is killed that had an answer."""

    async def commit(self, key: Key, change: Change) -> None:
        await super().commit(key, change)
        if any(node.envelope["t"] == "AssistantMessageState" for node in change.nodes):
            nodes = self._nodes[key]
            for node in change.nodes:
                nodes.pop((node.segment, node.index), None)
