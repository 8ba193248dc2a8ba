"""A lease of this process on a conversation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from connector.protocols import LeaseLost
from service.store.serialization import lost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connector.protocols import Claim, InboxEntry, StateChanges
    from orchestrator_interactive.storage.retry import StoreRetryPolicy
    from service.store.base import RunStore

T = TypeVar("T")
P = ParamSpec("P")


class HeldLease:
    """A lease on one conversation; implements `connector.protocols.ConversationLease`.

    Args:
        lease_s: duration of the lease from its last renewal.
        clock: monotonic seconds.
        requested_at_s: time of the claim request by `clock`. The lease is valid for `lease_s` from then on.
    """

    def __init__(  # noqa: PLR0913 - the process's settings, and the claim
        self,
        conversation_id: str,
        claim: Claim,
        *,
        store: RunStore,
        retry: StoreRetryPolicy,
        lease_s: float,
        clock: Callable[[], float],
        requested_at_s: float,
    ) -> None:
        self.conversation_id = conversation_id
        self.claim = claim
        self._store = store
        self._retry = retry
        self._lease_s = lease_s
        self._clock = clock
        self._valid_until_s = requested_at_s + lease_s
        self._lost = asyncio.Event()
        self._is_handed_over = self._is_released = False
        # Serialises renewals and the release: a renewal after the release would renew a released lease.
        self._renewing = asyncio.Lock()
        # Keeps the owner's writes in order.
        self._writing = asyncio.Lock()
        self._newest = max((entry.seq for entry in claim.entries), default=0)

    @property
    def is_over(self) -> bool:
        """Whether the lease was released or lost."""
        return self._is_released or self._lost.is_set()

    @property
    def is_being_renewed(self) -> bool:
        return self._renewing.locked()

    async def fetch(self, after: int) -> tuple[InboxEntry, ...]:
        entries = await self._call(self._store.fetch, after)
        self._newest = max([self._newest, after, *(entry.seq for entry in entries)])
        return entries

    async def write(self, changes: StateChanges) -> None:
        async with self._writing:
            await self._call(self._store.write, changes)

    async def release(self, seen: int) -> bool:
        async with self._writing, self._renewing:
            self._is_released = await self._call(self._store.release, seen)
        return self._is_released

    async def hand_over(self, due_in_s: float = 0.0) -> None:
        self._is_handed_over = True  # the next owner may claim it before the store's answer arrives
        async with self._writing, self._renewing:
            await self._call(self._store.hand_over, due_in_s)
            self._is_released = True

    async def lost(self) -> None:
        await self._lost.wait()

    async def confirm(self) -> None:
        if self._is_handed_over or self.is_over:
            raise lost(self.conversation_id)
        # A suspended process may have missed renewals, so its lease may belong to another process.
        if self._valid_until_s - self._clock() < self._lease_s / 2:
            await self._renew()

    async def renewed(self) -> bool:
        """Renew the lease. Return whether the inbox has entries that this process has not fetched.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        last = await self._renew()
        is_news, self._newest = last > self._newest, max(last, self._newest)
        return is_news

    def abandon(self) -> None:
        if not self._is_released:
            self.lose()

    def lose(self) -> None:
        """Mark the lease as lost to another process."""
        self._lost.set()

    async def _renew(self) -> int:
        async def renew(conversation_id: str, token: int) -> int:
            requested_at_s = self._clock()
            last = await self._store.renew(conversation_id, token, self._lease_s)
            self._valid_until_s = requested_at_s + self._lease_s
            return last

        async with self._renewing:
            return self._newest if self._is_released else await self._call(renew)

    async def _call(
        self, step: Callable[Concatenate[str, int, P], Awaitable[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Call a method of the store with the conversation, the fencing token and these arguments."""
        if self._lost.is_set():
            raise lost(self.conversation_id)
        try:
            return await self._retry.call(lambda: step(self.conversation_id, self.claim.token, *arguments, **named))
        except LeaseLost:
            self._lost.set()
            raise
