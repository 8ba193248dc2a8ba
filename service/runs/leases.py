"""The leases of this process and their renewal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog

from connector.protocols import LeaseLost
from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from connector.protocols import Claim, InboxEntry, StateChanges
    from service.store.base import RunStore
    from service.store.retry import StoreRetryPolicy

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Settings shared by all leases of a process.

    Args:
        lease_s: duration of a lease from its last renewal.
        clock: monotonic seconds.
    """

    store: RunStore
    retry: StoreRetryPolicy
    lease_s: float
    clock: Callable[[], float]


class HeldLease:
    """A lease on one conversation; implements `connector.protocols.ConversationLease`.

    Args:
        requested_at_s: time of the claim request by `config.clock`. The lease is valid for `lease_s` from then on.
    """

    def __init__(self, conversation_id: str, claim: Claim, config: LeaseConfig, requested_at_s: float) -> None:
        self.conversation_id = conversation_id
        self._claim = claim
        self._store = config.store
        self._retry = config.retry
        self._lease_s = config.lease_s
        self._clock = config.clock
        self._valid_until_s = requested_at_s + config.lease_s
        self._lost = asyncio.Event()
        self._is_handed_over = self._is_released = False
        # Serialises renewals and the release: a renewal after the release would renew a released lease.
        self._renewing = asyncio.Lock()
        # Keeps the owner's writes in order.
        self._writing = asyncio.Lock()
        self._newest = max((entry.seq for entry in claim.entries), default=0)

    @property
    def claim(self) -> Claim:
        return self._claim

    @property
    def is_over(self) -> bool:
        """Whether the lease was released or lost."""
        return self._is_released or self._lost.is_set()

    @property
    def is_being_renewed(self) -> bool:
        return self._renewing.locked()

    async def fetch(self, after: int) -> tuple[InboxEntry, ...]:
        entries = await self._call(lambda: self._store.fetch(self.conversation_id, self._claim.token, after))
        self._newest = max([self._newest, after, *(entry.seq for entry in entries)])
        return entries

    async def write(self, changes: StateChanges) -> None:
        async with self._writing:
            await self._call(lambda: self._store.write(self.conversation_id, self._claim.token, changes))

    async def release(self, seen: int) -> bool:
        async with self._writing, self._renewing:
            self._is_released = await self._call(
                lambda: self._store.release(self.conversation_id, self._claim.token, seen)
            )
        return self._is_released

    async def hand_over(self, due_in_s: float = 0.0) -> None:
        self._is_handed_over = True  # the next owner may claim it before the store's answer arrives
        async with self._writing, self._renewing:
            await self._call(lambda: self._store.hand_over(self.conversation_id, self._claim.token, due_in_s))
            self._is_released = True

    async def lost(self) -> None:
        await self._lost.wait()

    async def confirm(self) -> None:
        if self._is_handed_over or self.is_over:
            raise self._lease_lost()
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

    async def _renew(self) -> int:
        async def renew() -> int:
            requested_at_s = self._clock()
            last = await self._store.renew(self.conversation_id, self._claim.token, self._lease_s)
            self._valid_until_s = requested_at_s + self._lease_s
            return last

        async with self._renewing:
            return self._newest if self._is_released else await self._call(renew)

    def abandon(self) -> None:
        if not self._is_released:
            self.lose()

    def lose(self) -> None:
        """Mark the lease as lost to another process."""
        self._lost.set()

    def _lease_lost(self) -> LeaseLost:
        return LeaseLost(
            f"The lease on the conversation {self.conversation_id} is lost: another process has claimed it, this one "
            "has released it, or it is no longer in the store."
        )

    async def _call(self, step: Callable[[], Awaitable[T]]) -> T:
        if self._lost.is_set():
            raise self._lease_lost()
        try:
            return await self._retry.call(step)
        except LeaseLost:
            self._lost.set()
            raise


class Leases:
    """The leases that this process holds, by conversation."""

    def __init__(self, lease_s: float, on_work: Callable[[str], None]) -> None:
        self._lease_s = lease_s
        self._on_work = on_work
        self._held: dict[str, HeldLease] = {}

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[HeldLease]:
        """Iterate over the leases that are held now."""
        self._held = {name: lease for name, lease in self._held.items() if not lease.is_over}
        return iter(list(self._held.values()))

    def hold(self, lease: HeldLease) -> None:
        """Register a lease for renewal. It invalidates an earlier lease on the same conversation."""
        earlier = self._held.get(lease.conversation_id)
        if earlier is not None and not earlier.is_over:
            earlier.lose()
        self._held[lease.conversation_id] = lease

    async def renew(self) -> None:
        """Renew all leases concurrently, for ever. A slow renewal does not delay the others."""
        async with asyncio.TaskGroup() as renewals:
            while True:
                await asyncio.sleep(min(self._lease_s / 4, 1.0))
                for lease in self:
                    if not lease.is_being_renewed:
                        renewals.create_task(self._renew(lease))

    async def _renew(self, lease: HeldLease) -> None:
        try:
            if await lease.renewed():
                self._on_work(lease.conversation_id)
        except LeaseLost:
            log.warning("lease.lost", conversation=lease.conversation_id, token=lease.claim.token)
        except StoreError as e:
            log.error("lease.not_renewed", conversation=lease.conversation_id, problem=str(e))  # noqa: TRY400 - the message gives the reason
