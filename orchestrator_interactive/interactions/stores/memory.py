"""Logs in memory, for tests and for conversations that end with the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.stores.base import Log, conflict, fenced, refuse_broken_text

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import Change


class MemoryStore:
    def __init__(self) -> None:
        self._logs: dict[Key, Log] = {}
        self._nodes: dict[Key, dict[tuple[int, int], Node]] = {}
        self._fences: dict[Key, int] = {}
        self._last: dict[Key, str] = {}
        self._agents: dict[str, str] = {}

    async def load(self, key: Key) -> Log | None:
        return self._logs.get(key)

    async def commit(self, key: Key, change: Change) -> None:
        if self._last.get(key) == change.id:
            return
        self._refuse_fenced(key, change.fence)
        self._refuse_other(key, change.version)
        self._last[key] = change.id
        tree = change.tree or self._logs[key].tree
        self._logs[key] = Log(change.version + 1, tree.with_end(change.end, change.written))
        nodes = self._nodes.setdefault(key, {})
        nodes.update({(node.segment, node.index): node for node in change.nodes})
        for cut in change.cuts:
            for index in range(cut.start, cut.stop):
                nodes.pop((cut.segment, index), None)

    async def fence(self, key: Key, token: int) -> None:
        self._refuse_fenced(key, token)
        self._fences[key] = token

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        nodes = self._nodes.get(key, {})
        return [nodes[segment, index] for index in range(start, stop) if (segment, index) in nodes]

    async def keys(self) -> list[Key]:
        written = {key: log.tree.head.written for key, log in self._logs.items()}
        return sorted(written, key=lambda key: (-written[key], key.conversation_id, key.agent_id))

    async def remove(self, key: Key, version: int, fence: int | None = None) -> None:
        self._refuse_fenced(key, fence)
        self._refuse_other(key, version)
        for stored in (self._logs, self._nodes, self._last):
            stored.pop(key, None)

    async def save_agent(self, agent_id: str, config: str) -> None:
        refuse_broken_text(agent_id, config)
        self._agents[agent_id] = config

    async def agents(self) -> dict[str, str]:
        return dict(sorted(self._agents.items()))

    async def forget_agent(self, agent_id: str) -> None:
        self._agents.pop(agent_id, None)

    async def delete_expired(self) -> None:
        """Do nothing: nothing expires."""

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    def _refuse_fenced(self, key: Key, token: int | None) -> None:
        if token is not None and self._fences.get(key, 0) > token:
            raise fenced(key)

    def _refuse_other(self, key: Key, version: int) -> None:
        log = self._logs.get(key)
        if (log.version if log else 0) != version:
            raise conflict(key)
