"""What people do in conversations, kept and told to whoever owns them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import WeakValueDictionary

import structlog

from connector.protocols import LeaseLost
from orchestrator_interactive.interactions.errors import StoreAway, StoreError
from service.leases import HeldLease, Leases
from service.store.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from connector.protocols import Entry
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

T = TypeVar("T")

# How often this process looks for conversations that nobody owns, and how many it takes on at a time.
_LOOK_EVERY_S = 1.0
_MOST_AT_A_TIME = 50
# Where there are more than that.
_LOOK_AGAIN_S = 0.1
# After a store has said that it cannot be used.
_TRY_AGAIN_S = 1.0
# Of entries that wait while the store is away: Slack delivers again what is not acknowledged.
_MOST_WAITING = 1000
# How long the end may take over leases that nobody has given back.
_HAND_OVER_WITHIN_S = 0.4


class Runs:
    """Inboxes and leases over a store that other processes may share; see `connector.protocols.Runs`.

    Args:
        store: where they are kept; it is not closed here.
        owner: what this process is called there; no two have the same name, not even one after the other.
        lease_s: how long a conversation stays with a process of which nothing is heard.
        patience: with the store; whoever uses the same one shares it.
        clock: seconds that pass by, also while the machine sleeps: leases run out meanwhile. By default, the loop's.
    """

    def __init__(
        self,
        store: RunStore,
        owner: str,
        lease_s: float,
        patience: Patience | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._owner = owner
        self._lease_s = lease_s
        self._patience = patience or Patience()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._listeners: list[Callable[[str], None]] = []
        self._is_watched = asyncio.Event()
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._admitting = 0
        self._leases = Leases(lease_s, self._look_after)
        self._entered_by: asyncio.Task[object] | None = None
        self._life: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._entered_by = asyncio.current_task()
        self._life = asyncio.create_task(self._live())
        self._life.add_done_callback(self._lived)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._life is not None  # noqa: S101 - it was entered
        self._life.cancel()
        held = list(self._leases)
        try:
            async with asyncio.timeout(_HAND_OVER_WITHIN_S):
                await asyncio.wait({self._life})
                await asyncio.gather(*map(_hand_over, held))
        except TimeoutError:
            log.warning("leases.not_handed_over", conversations=[lease.conversation_id for lease in self._leases])
        finally:
            for lease in held:
                lease.lose()
        if self._life.done() and not self._life.cancelled():
            self._life.result()

    def watch(self, look_after: Callable[[str], None]) -> None:
        """Call `look_after(conversation_id)` from here on, when something is to be done there."""
        self._listeners.append(look_after)
        self._is_watched.set()

    async def admit(self, conversation_id: str, entry: Entry, agent: str | None = None) -> bool:
        """Keep an entry, behind those of its conversation that were given here before it; False: it was known.

        Raises:
            StoreError: it cannot be kept, and waiting is no use.
            StoreAway: the store is away, and very many wait for it already.
        """
        if self._patience.is_away and self._admitting >= _MOST_WAITING:
            raise StoreAway(f"{_MOST_WAITING} entries wait for the store already: Slack is to deliver this one again.")
        order = self._orders.setdefault(conversation_id, asyncio.Lock())
        self._admitting += 1
        try:
            async with order:
                admitted = await self._patience.through(lambda: self._store.admit(conversation_id, entry, agent))
        finally:
            self._admitting -= 1
        if admitted.owner in (None, self._owner):
            self._look_after(conversation_id)
        return admitted.is_new

    async def claim(self, conversation_id: str) -> HeldLease | None:
        """Own the conversation; `None`: another process does.

        Raises:
            StoreError: the store cannot be used, and waiting is no use.
        """
        lease = await self._patience.through(lambda: self._claimed(conversation_id))
        if lease is not None:
            self._leases.hold(lease)
        return lease

    async def agent_of(self, conversation_id: str) -> str | None:
        """The instance that a conversation goes on with; `None`: nobody has written to an agent there."""
        return await self._patience.through(lambda: self._store.agent_of(conversation_id))

    async def _claimed(self, conversation_id: str) -> HeldLease | None:
        """Claim it, but after an outage not what another process had: its lease may have run out just by that."""
        if self._patience.unsettled_s(self._lease_s):
            known = await self._store.known(conversation_id)
            if known is not None and known.owner not in (None, self._owner):
                return None
        asked_at_s = self._clock()
        claim = await self._store.claim(conversation_id, self._owner, self._lease_s)
        if claim is None:
            return None
        return HeldLease(conversation_id, claim, self._store, self._patience, self._lease_s, self._clock, asked_at_s)

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as endless:
            for each in (self._leases.renew(), self._hear(), self._look_for_due()):
                endless.create_task(each)

    def _lived(self, life: asyncio.Task[None]) -> None:
        """Without it nobody would be told of anything: whoever entered this ends, too, and is raised its error."""
        if not life.cancelled() and self._entered_by is not None:
            log.critical("runs.failed", exc_info=life.exception())
            self._entered_by.cancel()

    def _look_after(self, conversation_id: str) -> None:
        for listener in self._listeners:
            listener(conversation_id)

    async def _hear(self) -> None:
        """Pass on what others tell this process."""
        while True:
            for conversation_id in await self._insisting(lambda: self._store.woken(self._owner)):
                self._look_after(conversation_id)

    async def _look_for_due(self) -> None:
        """Pass on what nobody looks after; after an outage `_claimed` leaves it to those who owned it."""
        await self._is_watched.wait()
        while True:
            due = await self._insisting(lambda: self._store.due(_MOST_AT_A_TIME))
            for conversation_id in due:
                self._look_after(conversation_id)
            are_more = len(due) == _MOST_AT_A_TIME and not self._patience.unsettled_s(self._lease_s)
            wait_s = _LOOK_AGAIN_S if are_more else _LOOK_EVERY_S
            await asyncio.sleep(wait_s * random.uniform(0.75, 1.25))  # noqa: S311 - so that replicas do not look at once

    async def _insisting(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the store answers, however long it cannot be used."""
        while True:
            try:
                return await self._patience.through(ask)
            except StoreError as e:
                log.error("store.unusable", problem=str(e))  # noqa: TRY400 - the sentence says why
            await asyncio.sleep(_TRY_AGAIN_S)


async def _hand_over(lease: HeldLease) -> None:
    try:
        await lease.hand_over()
    except (LeaseLost, StoreError) as e:
        log.warning("lease.not_handed_over", conversation=lease.conversation_id, problem=str(e))
