"""What people do in conversations, kept and told to whoever owns them."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import WeakValueDictionary

import structlog

from connector.protocols import LeaseLost
from orchestrator_interactive.storage.errors import StoreAway, StoreError, StoreGone
from service.runs.leases import HeldLease, LeaseConfig, Leases
from service.store.base import workspace_of
from service.store.retry import StoreRetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from connector.protocols import InboxEntry
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

T = TypeVar("T")

# How often this process looks for conversations that nobody owns, and how many it takes on at a time.
_LOOK_EVERY_S = 1.0
_MOST_AT_A_TIME = 50
_MOST_OWNED = 500
# Where there are more than that.
_LOOK_AGAIN_S = 0.1
# After a store has said that it cannot be used.
_TRY_AGAIN_S = 1.0
# Of entries that wait while the store is away: Slack delivers again what is not acknowledged.
_MOST_WAITING = 1000
# How long the end may take over leases that nobody has given back.
_HAND_OVER_WITHIN_S = 0.4


class StoredRuns:
    """Inboxes and leases over a store that other processes may share; see `connector.protocols.Runs`.

    Args:
        store: where they are kept; it is not closed here.
        owner: what this process is called there; no two have the same name, not even one after the other.
        lease_s: how long a conversation stays with a process of which nothing is heard.
        patience: with the store; whoever uses the same one shares it.
        clock: seconds that pass by, also while the machine sleeps: leases run out meanwhile. By default, the loop's.
        most_owned: as long as it owns so many conversations, it looks for no more.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all but the first three have defaults
        self,
        store: RunStore,
        owner: str,
        lease_s: float,
        patience: StoreRetryPolicy | None = None,
        clock: Callable[[], float] | None = None,
        most_owned: int = _MOST_OWNED,
    ) -> None:
        self._store = store
        self._owner = owner
        self._lease_s = lease_s
        self._patience = patience or StoreRetryPolicy()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._listeners: defaultdict[str, list[Callable[[str], None]]] = defaultdict(list)  # by workspace
        self._is_watched = asyncio.Event()
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._admitting = 0
        self._most_owned = most_owned
        self._terms = LeaseConfig(store, self._patience, lease_s, self._clock)
        self._leases = Leases(lease_s, self._look_after)
        # Conversations that others owned before an outage, and since when they could be asked for.
        self._found_unsettled: dict[str, float] = {}
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
            async with asyncio.timeout(_HAND_OVER_WITHIN_S / 4 if self._patience.is_away else _HAND_OVER_WITHIN_S):
                await asyncio.wait({self._life})
                await asyncio.gather(*map(_hand_over, held))
        except TimeoutError:
            log.warning("leases.not_handed_over", conversations=[lease.conversation_id for lease in self._leases])
        finally:
            for lease in held:
                lease.lose()
        if self._life.done() and not self._life.cancelled() and (problem := self._life.exception()) is not None:
            raise _why(problem)

    def watch(self, workspace: str, look_after: Callable[[str], None]) -> None:
        """Call `look_after(conversation_id)` from here on, when something is to be done in a conversation there."""
        self._listeners[workspace].append(look_after)
        self._is_watched.set()

    async def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None = None) -> bool:
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
        if admitted.is_new and admitted.owner in (None, self._owner):
            self._look_after(conversation_id)
        return admitted.is_new

    async def claim(self, conversation_id: str) -> HeldLease | None:
        """Own the conversation; `None`: another process does, or this one does not watch its workspace.

        Raises:
            StoreError: the store cannot be used, and waiting is no use.
        """
        if workspace_of(conversation_id) not in self._listeners:
            return None
        lease = await self._patience.through(lambda: self._claimed(conversation_id))
        if lease is not None:
            self._leases.hold(lease)
        return lease

    async def agent_of(self, conversation_id: str) -> str | None:
        """The instance that a conversation goes on with; `None`: nobody has written to an agent there."""
        return await self._patience.through(lambda: self._store.agent_of(conversation_id))

    async def _claimed(self, conversation_id: str) -> HeldLease | None:
        if await self._may_be_its_owners(conversation_id):
            return None
        asked_at_s = self._clock()
        claim = await self._store.claim(conversation_id, self._owner, self._lease_s)
        if claim is None:
            return None
        return HeldLease(conversation_id, claim, self._terms, asked_at_s)

    async def _may_be_its_owners(self, conversation_id: str) -> bool:
        """Whether another process may not have renewed its lease just because the store was away.

        It has as long as its lease for it, from when this process finds that the store answers for this conversation:
        of several servers one may answer while another is away.
        """
        if not self._patience.unsettled_s(self._lease_s):
            self._found_unsettled.clear()
            return False
        try:
            known = await self._store.known(conversation_id)
        except StoreAway:
            self._found_unsettled.pop(conversation_id, None)
            raise
        if known is None or known.owner in (None, self._owner):
            return False
        return self._clock() < self._found_unsettled.setdefault(conversation_id, self._clock()) + self._lease_s

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as endless:
            for each in (self._leases.renew(), self._hear(), self._look_for_due()):
                endless.create_task(each)

    def _lived(self, life: asyncio.Task[None]) -> None:
        """Without it nobody would be told of anything: whoever entered this ends, too, and is raised its error."""
        problem = None if life.cancelled() else life.exception()
        if problem is None or self._entered_by is None:
            return
        match _why(problem):
            case StoreGone() as gone:
                log.critical("store.gone", problem=str(gone))
            case other:
                log.critical("runs.failed", exc_info=other)
        self._entered_by.cancel()

    def _look_after(self, conversation_id: str) -> None:
        for listener in self._listeners.get(workspace_of(conversation_id), ()):
            listener(conversation_id)

    async def _hear(self) -> None:
        """Pass on what others tell this process."""
        while True:
            for conversation_id in await self._insisting(lambda: self._store.woken(self._owner)):
                self._look_after(conversation_id)

    async def _look_for_due(self) -> None:
        """Pass on what nobody looks after; after an outage `_claimed` leaves it to those who owned it.

        Not while very much is under way here already: a lease must be renewed in time, and there may be others.
        Only workspaces that this process watches are looked at.
        """
        await self._is_watched.wait()
        while True:
            are_more = False
            for workspace in list(self._listeners):
                most = min(self._most_owned - len(self._leases), _MOST_AT_A_TIME)
                due = await self._insisting(partial(self._store.due, workspace, most)) if most > 0 else []
                for conversation_id in due:
                    self._look_after(conversation_id)
                are_more |= len(due) == most and not self._patience.unsettled_s(self._lease_s)
            wait_s = _LOOK_AGAIN_S if are_more else _LOOK_EVERY_S
            await asyncio.sleep(wait_s * random.uniform(0.75, 1.25))  # noqa: S311 - so that replicas do not look at once

    async def _insisting(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the store answers, however long it cannot be used.

        Raises:
            StoreGone: it never will.
        """
        while True:
            try:
                return await self._patience.through(ask)
            except StoreGone:
                raise
            except StoreError as e:
                log.error("store.unusable", problem=str(e))  # noqa: TRY400 - the sentence says why
            await asyncio.sleep(_TRY_AGAIN_S)


def _why(problem: BaseException) -> BaseException:
    """The error of a task that failed in its group."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


async def _hand_over(lease: HeldLease) -> None:
    try:
        await lease.hand_over()
    except (LeaseLost, StoreError) as e:
        log.warning("lease.not_handed_over", conversation=lease.conversation_id, problem=str(e))
