"""Admission of inbox entries, claims of conversations, and notification of their owners."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import WeakValueDictionary

import structlog

from connector.protocols import LeaseLost
from orchestrator_interactive.storage.errors import StoreError, StoreReplaced, StoreUnavailable
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.runs.leases import HeldLease
from service.store.base import workspace_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from connector.protocols import InboxEntry
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

T = TypeVar("T")

# How often this process looks for due conversations without an owner, and how many it takes over at a time.
_LOOK_EVERY_S = 1.0
_MOST_AT_A_TIME = 50
_MOST_OWNED = 500
# The interval while more conversations are due than that.
_LOOK_AGAIN_S = 0.1
# Delay before retrying a store that reports an error.
_TRY_AGAIN_S = 1.0
# Maximum number of admissions waiting during a store outage. Slack redelivers events that are not acknowledged.
_MOST_WAITING = 1000
# Time limit at shutdown for handing over the leases that are still held.
_HAND_OVER_WITHIN_S = 0.4


class StoredRuns:
    """Inboxes and leases in a store that processes share; implements `connector.protocols.RunService`.

    Args:
        store: the run store; the caller closes it.
        owner: name of this process in the store; unique, even after a restart.
        lease_s: duration of a lease without renewal.
        retry: retry policy of the store, shared by all its users in the process.
        clock: monotonic seconds that include suspension of the machine, because leases expire during it. Default: the
            event loop's clock.
        most_owned: stop taking over conversations while this process owns so many.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all but the first three have defaults
        self,
        store: RunStore,
        owner: str,
        lease_s: float,
        retry: StoreRetryPolicy | None = None,
        clock: Callable[[], float] | None = None,
        most_owned: int = _MOST_OWNED,
    ) -> None:
        self._store = store
        self._owner = owner
        self._lease_s = lease_s
        self._retry = retry or StoreRetryPolicy()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._listeners: defaultdict[str, list[Callable[[str], None]]] = defaultdict(list)  # by workspace
        self._is_watched = asyncio.Event()
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._admitting = 0
        self._most_owned = most_owned
        self._held: dict[str, HeldLease] = {}
        # Conversations that others owned before an outage, with the time since when the store answers for each.
        self._found_unsettled: dict[str, float] = {}
        self._entered_by: asyncio.Task[object] | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._entered_by = asyncio.current_task()
        self._running = asyncio.create_task(self._run())
        self._running.add_done_callback(self._on_stopped)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._running is not None  # noqa: S101 - it was entered
        self._running.cancel()
        held = self._leases()
        try:
            async with asyncio.timeout(_HAND_OVER_WITHIN_S / 4 if self._retry.is_unavailable else _HAND_OVER_WITHIN_S):
                # Before Python 3.12, redis-py may lose the cancellation while it opens a connection.
                await asyncio.wait({self._running}, timeout=_HAND_OVER_WITHIN_S / 4)
                await asyncio.gather(*map(_hand_over, held))
        except TimeoutError:
            log.warning("leases.not_handed_over", conversations=[lease.conversation_id for lease in self._leases()])
        finally:
            for lease in held:
                lease.lose()
        if (
            self._running.done()
            and not self._running.cancelled()
            and (problem := self._running.exception()) is not None
        ):
            raise _root_cause(problem)

    def watch(self, workspace: str, on_work: Callable[[str], None]) -> None:
        """Call `on_work(conversation_id)` whenever a conversation of the workspace has work to do."""
        self._listeners[workspace].append(on_work)
        self._is_watched.set()

    async def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None = None) -> bool:
        """Append an entry to the conversation's inbox, in call order. Return False for a duplicate.

        Raises:
            StoreError: the entry cannot be stored, and a retry would not help.
            StoreUnavailable: the store is unreachable, and `_MOST_WAITING` admissions wait for it already.
        """
        if self._retry.is_unavailable and self._admitting >= _MOST_WAITING:
            raise StoreUnavailable(
                f"{_MOST_WAITING} entries already wait for the store; Slack will redeliver this one."
            )
        order = self._orders.setdefault(conversation_id, asyncio.Lock())
        self._admitting += 1
        try:
            async with order:
                admitted = await self._retry.call(lambda: self._store.admit(conversation_id, entry, agent))
        finally:
            self._admitting -= 1
        if admitted.is_new and admitted.owner in (None, self._owner):
            self._notify_listeners(conversation_id)
        return admitted.is_new

    async def claim(self, conversation_id: str) -> HeldLease | None:
        """Claim the conversation's lease; `None` if another process holds it or this one does not serve its workspace.

        Raises:
            StoreError: the store cannot be used, and a retry would not help.
        """
        if workspace_of(conversation_id) not in self._listeners:
            return None
        lease = await self._retry.call(lambda: self._claim_once(conversation_id))
        if lease is not None:
            earlier = self._held.get(conversation_id)
            if earlier is not None and not earlier.is_over:
                earlier.lose()
            self._held[conversation_id] = lease
        return lease

    async def agent_of(self, conversation_id: str) -> str | None:
        """Return the conversation's instance; `None` if no message there addressed an agent yet."""
        return await self._retry.call(lambda: self._store.agent_of(conversation_id))

    async def _claim_once(self, conversation_id: str) -> HeldLease | None:
        if await self._may_be_its_owners(conversation_id):
            return None
        requested_at_s = self._clock()
        claim = await self._store.claim(conversation_id, self._owner, self._lease_s)
        if claim is None:
            return None
        return HeldLease(
            conversation_id,
            claim,
            store=self._store,
            retry=self._retry,
            lease_s=self._lease_s,
            clock=self._clock,
            requested_at_s=requested_at_s,
        )

    async def _may_be_its_owners(self, conversation_id: str) -> bool:
        """Return whether another process may have missed renewals only because of a store outage.

        That owner gets one lease duration from the moment that the store answers for this conversation: in a cluster,
        one server may answer while another is still unreachable.
        """
        if not self._retry.unsettled_s(self._lease_s):
            self._found_unsettled.clear()
            return False
        try:
            record = await self._store.record(conversation_id)
        except StoreUnavailable:
            self._found_unsettled.pop(conversation_id, None)
            raise
        if record is None or record.owner in (None, self._owner):
            return False
        return self._clock() < self._found_unsettled.setdefault(conversation_id, self._clock()) + self._lease_s

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as endless:
            for each in (self._renew_all(), self._listen(), self._poll_due()):
                endless.create_task(each)

    def _on_stopped(self, life: asyncio.Task[None]) -> None:
        """Cancel the task that entered this context if the background task failed: `__aexit__` raises its error."""
        problem = None if life.cancelled() else life.exception()
        if problem is None or self._entered_by is None:
            return
        match _root_cause(problem):
            case StoreReplaced() as gone:
                log.critical("store.replaced", problem=str(gone))
            case other:
                log.critical("runs.failed", exc_info=other)
        self._entered_by.cancel()

    def _notify_listeners(self, conversation_id: str) -> None:
        for listener in self._listeners.get(workspace_of(conversation_id), ()):
            listener(conversation_id)

    def _leases(self) -> list[HeldLease]:
        """Return the leases that this process holds now."""
        self._held = {name: lease for name, lease in self._held.items() if not lease.is_over}
        return list(self._held.values())

    async def _renew_all(self) -> None:
        """Renew all leases concurrently, for ever. A slow renewal does not delay the others."""
        async with asyncio.TaskGroup() as renewals:
            while True:
                await asyncio.sleep(min(self._lease_s / 4, 1.0))
                for lease in self._leases():
                    if not lease.is_being_renewed:
                        renewals.create_task(self._renew(lease))

    async def _renew(self, lease: HeldLease) -> None:
        try:
            if await lease.renewed():
                self._notify_listeners(lease.conversation_id)
        except LeaseLost:
            log.warning("lease.lost", conversation=lease.conversation_id, token=lease.claim.token)
        except StoreError as e:
            log.error("lease.not_renewed", conversation=lease.conversation_id, problem=str(e))  # noqa: TRY400 - the message gives the reason

    async def _listen(self) -> None:
        """Dispatch the store's notifications of entries that other processes admitted."""
        while True:
            for conversation_id in await self._retrying(lambda: self._store.wait_for_notifications(self._owner)):
                self._notify_listeners(conversation_id)

    async def _poll_due(self) -> None:
        """Dispatch due conversations without an owner in the workspaces that this process serves.

        After an outage, `_claim_once` leaves them to their previous owners. Paused while this process owns `most_owned`
        conversations: it must renew their leases in time, and other replicas may have capacity.
        """
        await self._is_watched.wait()
        while True:
            are_more = False
            for workspace in list(self._listeners):
                most = min(self._most_owned - len(self._leases()), _MOST_AT_A_TIME)
                due = await self._retrying(partial(self._store.due, workspace, most)) if most > 0 else []
                for conversation_id in due:
                    self._notify_listeners(conversation_id)
                are_more |= len(due) == most and not self._retry.unsettled_s(self._lease_s)
            wait_s = _LOOK_AGAIN_S if are_more else _LOOK_EVERY_S
            await asyncio.sleep(wait_s * random.uniform(0.75, 1.25))  # noqa: S311 - jitter between replicas

    async def _retrying(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry a store call until it succeeds.

        Raises:
            StoreReplaced: the store cannot recover.
        """
        while True:
            try:
                return await self._retry.call(ask)
            except StoreReplaced:
                raise
            except StoreError as e:
                log.error("store.unusable", problem=str(e))  # noqa: TRY400 - the message gives the reason
            await asyncio.sleep(_TRY_AGAIN_S)


def _root_cause(problem: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


async def _hand_over(lease: HeldLease) -> None:
    try:
        await lease.hand_over()
    except (LeaseLost, StoreError) as e:
        log.warning("lease.not_handed_over", conversation=lease.conversation_id, problem=str(e))
