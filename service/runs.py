"""Inboxes and leases of this process: admission, claims and renewals, and notification of the owners."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakValueDictionary

import structlog

from connector.observer import Observer
from connector.protocols import LeaseLost
from orchestrator_interactive.storage.errors import StoreError, StoreReplaced, StoreUnavailable
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.store.base import lost, workspace_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    from connector.protocols import Claim, InboxEntry, StateChanges, ThreadFacts
    from service.heartbeats import AnyHeartbeats
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

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
# The number of leases that are renewed by one request.
_RENEWED_TOGETHER = 100
# Time limit at shutdown for handing over the leases that are still held.
_HAND_OVER_WITHIN_S = 0.4


class HeldLease:
    """A lease on one conversation; implements `connector.protocols.ConversationLease`.

    Args:
        store: the run store.
        retry: retry policy of the store.
        lease_s: duration of the lease from its last renewal.
        clock: monotonic seconds.
        observer: gets reports of the moves of the lease, and of entries that leave the inbox.
        requested_at_s: time of the claim request by `clock`. The lease is valid for `lease_s` from then on.
        heartbeats: if they fall silent, another process ends the lease earlier.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the process's settings, and the claim
        self,
        store: RunStore,
        retry: StoreRetryPolicy,
        lease_s: float,
        clock: Callable[[], float],
        observer: Observer,
        conversation_id: str,
        claim: Claim,
        requested_at_s: float,
        heartbeats: AnyHeartbeats | None = None,
    ) -> None:
        self.conversation_id = conversation_id
        self.claim = claim
        self._store = store
        self._retry = retry
        self._lease_s = lease_s
        self._clock = clock
        self._observer = observer
        self._renewed_s = requested_at_s
        self._heartbeats = heartbeats
        self._lost = asyncio.Event()
        self._is_handed_over = self._is_released = False
        # Serialises renewals and the release: a renewal after the release would renew a released lease.
        self._renewing = asyncio.Lock()
        # Keeps the owner's writes in order.
        self._writing = asyncio.Lock()
        self._newest = max((entry.seq for entry in claim.entries), default=0)
        self.is_being_renewed = False

    @property
    def is_over(self) -> bool:
        """Whether the lease was released or lost."""
        return self._is_released or self._lost.is_set()

    async def fetch(self, after: int) -> tuple[InboxEntry, ...]:
        entries = await self._call(self._store.fetch, after)
        self._newest = max([self._newest, after, *(entry.seq for entry in entries)])
        return entries

    async def write(self, changes: StateChanges) -> None:
        async with self._writing:
            await self._call(self._store.write, changes)
        if changes.closed:
            self._observer.left_inbox(changes.closed.values())

    async def release(self, seen: int) -> bool:
        async with self._writing, self._renewing:
            self._is_released = await self._call(self._store.release, seen)
        if self._is_released:
            self._observer.lease("released")
        return self._is_released

    async def hand_over(self, due_in_s: float = 0.0) -> None:
        self._is_handed_over = True  # the next owner may claim it before the store's answer arrives
        async with self._writing, self._renewing:
            await self._call(self._store.release, None, due_in_s)
            self._is_released = True
        self._observer.lease("handed_over")

    async def lost(self) -> None:
        await self._lost.wait()

    def abandon(self) -> None:
        if not self._is_released:
            self.lose()

    def lose(self) -> None:
        """Report the lease as lost, even if it was released."""
        self._lost.set()

    async def confirm(self) -> None:
        if self._is_handed_over or self.is_over:
            raise lost(self.conversation_id)
        # A suspended process may have missed renewals and heartbeats, so its lease may belong to another process.
        is_unsafe = self._heartbeats is not None and not self._heartbeats.is_lease_safe(self._renewed_s)
        if is_unsafe or self._clock() - self._renewed_s > self._lease_s / 2:
            await self._renew()

    async def renewed(self) -> bool:
        """Renew the lease. Return whether the inbox has entries that this process has not fetched.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        return self._sees(await self._renew())

    def was_renewed(self, requested_at_s: float, last: int) -> bool:
        """Note a renewal and the last sequence number in the inbox; return as `renewed`."""
        self._renewed_s = max(self._renewed_s, requested_at_s)
        return self._sees(last)

    def _sees(self, last: int) -> bool:
        is_news, self._newest = last > self._newest, max(last, self._newest)
        return is_news

    async def _renew(self) -> int:
        async def renew(conversation_id: str, token: int) -> int:
            requested_at_s = self._clock()
            last = await self._store.renew(conversation_id, token, self._lease_s)
            self._renewed_s = requested_at_s
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
            if not self._lost.is_set():
                self._observer.lease("lost")
            self._lost.set()
            raise


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
        observer: gets reports of new entries, and as in `HeldLease`.
        heartbeats: those between the processes of a store; they run while this is entered.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all but the first three have defaults
        self,
        store: RunStore,
        owner: str,
        lease_s: float,
        retry: StoreRetryPolicy | None = None,
        clock: Callable[[], float] | None = None,
        most_owned: int = _MOST_OWNED,
        observer: Observer | None = None,
        heartbeats: AnyHeartbeats | None = None,
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
        self._observer = observer or Observer()
        self._held: dict[str, HeldLease] = {}
        # Conversations that others owned before an outage, with the time since when the store answers for each.
        self._found_unsettled: dict[str, float] = {}
        self._entered_by: asyncio.Task[object] | None = None
        self._running: asyncio.Task[None] | None = None
        self._heartbeats = heartbeats
        self._leases_ended = asyncio.Event()
        if heartbeats is not None:
            heartbeats.listen(self._leases_ended.set)

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
        if problem := _problem(self._running):
            raise problem

    def watch(self, workspace: str, on_work: Callable[[str], None]) -> Callable[[], None]:
        """Call `on_work(conversation_id)` whenever a conversation of the workspace has work to do.

        Returns a function that ends it.
        """
        listeners = self._listeners[workspace]
        listeners.append(on_work)
        self._is_watched.set()

        def end() -> None:
            listeners.remove(on_work)
            if not listeners:
                self._listeners.pop(workspace, None)

        return end

    async def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> bool:
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
                admitted = await self._retry.call(lambda: self._store.admit(conversation_id, entry, agent, facts))
        finally:
            self._admitting -= 1
        if admitted.is_new:
            self._observer.admitted(conversation_id, entry)
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
            if earlier := self._held.get(conversation_id):
                earlier.abandon()
            self._held[conversation_id] = lease
        return lease

    async def learn(self, conversation_id: str, facts: Mapping[str, str]) -> None:
        """Store facts of a known thread: see `ThreadFacts.latest`."""
        await self._retry.call(lambda: self._store.learn(conversation_id, facts))

    async def thread_of(self, conversation_id: str) -> ThreadFacts:
        """Return the facts of a thread."""
        return await self._retry.call(lambda: self._store.thread_of(conversation_id))

    async def at_work(self, place: str) -> dict[str, tuple[Mapping[str, Any] | None, tuple[InboxEntry, ...]]]:
        """Return the conversations at a place with pending work: the stored run, and the entries that none holds."""
        names = [each for each in await self._retry.call(self._store.unfinished) if each.startswith(f"{place}:")]
        records = {each: await self._retry.call(partial(self._store.record, each)) for each in names}
        return {
            name: (record.run, tuple(each for each in record.waiting if each.seq > record.held_seq))
            for name, record in records.items()
            if record is not None
        }

    async def _claim_once(self, conversation_id: str) -> HeldLease | None:
        if await self._may_be_its_owners(conversation_id):
            return None
        requested_at_s = self._clock()
        claim = await self._store.claim(conversation_id, self._owner, self._lease_s)
        if claim is None:
            return None
        self._observer.lease("taken_over" if claim.run is not None and "id" in claim.run else "taken")
        settings = self._store, self._retry, self._lease_s, self._clock, self._observer
        return HeldLease(*settings, conversation_id, claim, requested_at_s, self._heartbeats)

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
            if self._heartbeats is not None:
                endless.create_task(self._heartbeats.run())

    def _on_stopped(self, life: asyncio.Task[None]) -> None:
        """Cancel the task that entered this context if the background task failed: `__aexit__` raises its error."""
        match _problem(life):
            case None:
                return
            case StoreReplaced() as gone:
                log.critical("store.replaced", problem=str(gone))
            case other:
                log.critical("runs.failed", exc_info=other)
        if self._entered_by is not None:
            self._entered_by.cancel()

    def _notify_listeners(self, conversation_id: str) -> None:
        for listener in self._listeners.get(workspace_of(conversation_id), ()):
            listener(conversation_id)

    def _leases(self) -> list[HeldLease]:
        """Return the leases that this process holds now."""
        self._held = {name: lease for name, lease in self._held.items() if not lease.is_over}
        return list(self._held.values())

    async def _renew_all(self) -> None:
        """Renew all leases for ever, those on a server together. A slow server does not delay the others."""
        async with asyncio.TaskGroup() as renewals:
            while True:
                await asyncio.sleep(min(self._lease_s / 4, 1.0))
                by_server = defaultdict(list)
                for lease in self._leases():
                    if not lease.is_being_renewed:
                        by_server[self._store.server_of(lease.conversation_id)].append(lease)
                for leases in by_server.values():
                    for start in range(0, len(leases), _RENEWED_TOGETHER):
                        renewals.create_task(self._renew_together(leases[start : start + _RENEWED_TOGETHER]))

    async def _renew_together(self, leases: list[HeldLease]) -> None:
        tokens, requested_at_s = {each.conversation_id: each.claim.token for each in leases}, self._clock()
        for lease in leases:
            lease.is_being_renewed = True
        try:
            try:
                newest = await self._store.renew_all(tokens, self._lease_s)
            except StoreError:  # each is tried again, and reports it
                newest = {}
            left = []
            for lease in leases:
                if lease.conversation_id not in newest:
                    left += [] if lease.is_over else [self._renew(lease)]
                elif lease.was_renewed(requested_at_s, newest[lease.conversation_id]):
                    self._notify_listeners(lease.conversation_id)
            await asyncio.gather(*left)
        finally:
            for lease in leases:
                lease.is_being_renewed = False

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
                most = min(self._room_of(workspace), _MOST_AT_A_TIME)
                due = await self._retrying(partial(self._store.due, workspace, most)) if most > 0 else []
                for conversation_id in due:
                    self._notify_listeners(conversation_id)
                are_more |= len(due) == most and not self._retry.unsettled_s(self._lease_s)
            wait_s = _LOOK_AGAIN_S if are_more else _LOOK_EVERY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s * random.uniform(0.75, 1.25)):  # noqa: S311 - jitter between replicas
                    await self._leases_ended.wait()
            self._leases_ended.clear()

    def _room_of(self, workspace: str) -> int:
        """Return how many more conversations this process may own in a workspace: of several, no one takes all."""
        owned = [workspace_of(lease.conversation_id) for lease in self._leases()]
        share = self._most_owned if len(self._listeners) == 1 else self._most_owned // 2
        return min(self._most_owned - len(owned), share - owned.count(workspace))

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


def _problem(ended: asyncio.Task[None]) -> BaseException | None:
    """Return the first error inside the nested exception groups of a task; `None` if it has not failed."""
    problem = ended.exception() if ended.done() and not ended.cancelled() else None
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


async def _hand_over(lease: HeldLease) -> None:
    try:
        await lease.hand_over()
    except (LeaseLost, StoreError) as e:
        log.warning("lease.not_handed_over", conversation=lease.conversation_id, problem=str(e))
