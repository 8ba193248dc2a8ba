"""The log of the conversation: a context behind a store that may be slow, or fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from simulated.posts import named
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.protocols import ContextManager
    from simulated.invariants import Invariants
    from simulated.scenario import Scenario

    Row = dict[str, Any]


class Log:
    """Keeps rows as the context under it does, and tells the judges of each."""

    def __init__(self, inner: ContextManager, scene: Scenario, judges: Invariants) -> None:
        self._inner = inner
        self._scene = scene
        self._judges = judges
        self.get_messages = inner.get_messages
        self.set_messages = inner.set_messages
        self.clear = inner.clear

    async def add_message(self, message: Row) -> None:
        scene = self._scene
        with scene.at("writing a row"):
            await self._dawdle()
            if scene.happens("flaky store", 0.03):
                self._judges.store_failed()
                scene.tell("log", f"fails to keep a row of the role '{message['role']}'")
                scene.count("row not kept")
                raise InjectedFault("the store is gone")
            await self._inner.add_message(message)
            scene.tell("log", f"keeps {_described(message)}")
            self._judges.row_added(message)
            await self._dawdle()

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any | None = None) -> list[Row]:
        with self._scene.at("reading the log"):
            await self._dawdle()
            self._judges.view_asked_for(token_budget)
            return await self._inner.get_messages_for_request(token_budget=token_budget, provider=provider)

    async def _dawdle(self) -> None:
        if self._scene.happens("slow store", 0.3):
            await asyncio.sleep(self._scene.some_s(0.001, 0.1))


def _described(row: Row) -> str:
    calls = ", ".join(call["id"] for call in row.get("tool_calls") or ())
    more = row.get("tool_call_id") or calls
    ids = (row.get("metadata") or {}).get("injections")
    return f"a row: {row['role']} {more or named(ids)}".rstrip()
