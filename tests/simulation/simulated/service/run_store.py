"""A run store that processes reach over a network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from connector.protocols import LeaseLost
from orchestrator_interactive.storage.errors import StoreUnavailable

from .network import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connector.protocols import Claim, InboxEntry, StateChanges
    from service.store.base import Admission, ConversationRecord

    from .network import Server
    from .run_table import RunTable
    from .store_observer import Witness

T = TypeVar("T")

# After which a question for news is answered though there are none.
_NO_NEWS_S = 10.0


class SimulatedRunStore:
    """A process's own door to the table that all share."""

    def __init__(self, server: Server, table: RunTable, witness: Witness, process: int) -> None:
        self._line = server.line()
        self._table = table
        self._witness = witness
        self._process = process

    async def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        return await self._ask("admit", self._admit, conversation_id, entry, agent)

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        return await self._ask("claim", self._claim, conversation_id, owner, lease_s)

    async def renew(self, conversation_id: str, token: int, lease_s: float) -> int:
        return await self._ask("renew", self._table.renew, conversation_id, token, lease_s)

    async def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        return await self._ask("fetch", self._table.fetch, conversation_id, token, after)

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        await self._ask("write", self._write, conversation_id, token, changes)

    async def release(self, conversation_id: str, token: int, seen: int) -> bool:
        return await self._ask("release", self._release, conversation_id, token, seen)

    async def hand_over(self, conversation_id: str, token: int, due_in_s: float = 0.0) -> None:
        await self._ask("hand_over", self._hand_over, conversation_id, token, due_in_s)

    async def due(self, workspace: str, most: int) -> list[str]:
        return await self._ask("due", self._table.due, workspace, most)

    async def wait_for_notifications(self, owner: str) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        news: asyncio.Future[tuple[str, ...]] = loop.create_future()
        await self._ask("wait_for_notifications", self._table.listen, owner, news)
        timer = loop.call_later(_NO_NEWS_S, _give_up, news)
        try:
            return await news
        finally:
            timer.cancel()

    async def agent_of(self, conversation_id: str) -> str | None:
        known = await self.record(conversation_id)
        return known.agent if known else None

    async def conversations(self) -> list[str]:
        return await self._ask("conversations", lambda: list(self._table.conversations))

    async def record(self, conversation_id: str) -> ConversationRecord | None:
        return await self._ask("known", self._table.known, conversation_id)

    async def orphans(self) -> list[str]:
        return []

    async def idle_since(self, _since: float) -> list[str]:
        return []

    async def delete_expired(self) -> None:
        """Nothing is kept for longer than the conversations."""

    async def forget(self, conversation_id: str) -> bool:
        return await self._ask("forget", self._table.forget, conversation_id)

    async def aclose(self) -> None:
        """Nothing to let go of."""

    def _admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        admission = self._table.admit(conversation_id, entry, agent)
        if admission.is_new:
            self._witness.admitted(conversation_id, entry, len(self._table.conversations[conversation_id].order))
        return admission

    def _claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        claim = self._table.claim(conversation_id, owner, lease_s)
        if claim is not None:
            self._witness.claimed(conversation_id, self._process, claim)
        return claim

    def _write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        try:
            self._table.write(conversation_id, token, changes)
        except LeaseLost:
            self._witness.refused(conversation_id, self._process, "a change")
            raise
        waiting = self._table.conversations[conversation_id].waiting
        self._witness.wrote(conversation_id, self._process, changes, waiting)

    def _release(self, conversation_id: str, token: int, seen: int) -> bool:
        is_released = self._table.release(conversation_id, token, seen)
        if is_released:
            self._witness.gave_back(conversation_id, self._process)
        return is_released

    def _hand_over(self, conversation_id: str, token: int, due_in_s: float) -> None:
        self._table.hand_over(conversation_id, token, due_in_s)
        self._witness.gave_back(conversation_id, self._process)

    async def _ask(self, what: str, step: Callable[..., T], *arguments: Any) -> T:
        try:
            return await self._line.ask(what, lambda: step(*arguments))
        except Unreachable as e:
            raise StoreUnavailable(f"The simulated store is away ({e}).") from e


def _give_up(news: asyncio.Future[tuple[str, ...]]) -> None:
    if not news.done():
        news.set_result(())
