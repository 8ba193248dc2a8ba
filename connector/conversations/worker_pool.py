"""The pool of conversation workers of this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import Context
from typing import TYPE_CHECKING, Self

import structlog
from structlog.contextvars import bind_contextvars

from connector.conversations.worker import ConversationWorker
from connector.protocols import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from connector.protocols import RunService
    from connector.runs.workspace import WorkspaceContext

log = structlog.get_logger(__name__)

# Runs that reach no boundary are cancelled this long before the end of the grace period; at most half of it.
_CANCEL_BEFORE_S = 2.0


class WorkerPool:
    """Claims conversations with pending work, and runs a worker in each until nothing is left to do.

    On exit, active runs are handed over within `shutdown_grace_s`.
    """

    def __init__(
        self, workspace: WorkspaceContext, runs: RunService, shutdown_grace_s: float, tools_grace_s: float | None = None
    ) -> None:
        self._workspace = workspace
        self._runs = runs
        self._grace_s = shutdown_grace_s
        self._tools_grace_s = shutdown_grace_s if tools_grace_s is None else tools_grace_s
        self._workers: dict[str, ConversationWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._unwatch: tuple[Callable[[], None], ...] = ()
        self.is_closing = False

    async def __aenter__(self) -> Self:
        team = self._workspace.router.team
        self._unwatch = (
            self._runs.watch(team, self.check_for_work),
            self._workspace.slots.watch(team, self.check_for_work),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Suspend the runs and hand their conversations over; then cancel runs and workers that have not ended."""
        self.suspend()
        last_s = min(_CANCEL_BEFORE_S, self._grace_s / 2)
        try:
            await self._ended(min(self._tools_grace_s, self._grace_s - last_s))
            for worker in self._workers.values():
                worker.cancel()
            await self._ended(last_s / 2)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await self._ended(last_s / 2)
            for end in self._unwatch:
                end()

    async def _ended(self, within_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=within_s)

    def suspend(self) -> None:
        """Claim no more conversations, and suspend the active runs."""
        self.is_closing = True
        for worker in self._workers.values():
            worker.suspend()

    def active_runs(self) -> Counter[str]:
        """Count the runs at work by instance; those that wait for a slot are left out."""
        runs = (worker.state.run for worker in self._workers.values())
        return Counter(run.instance.name for run in runs if run is not None and run.slot and run.slot.is_granted)

    def inbox_depth(self) -> int:
        """Count the messages in the inboxes of the conversations that this process owns."""
        return sum(worker.state.inbox.depth for worker in self._workers.values())

    def step_of(self, conversation_id: str) -> str:
        """Return the current step of a conversation's run; blank: none here."""
        worker = self._workers.get(conversation_id)
        run = worker.state.run if worker is not None else None
        return "" if run is None else run.status.phrase

    def running_at(self, channel: str, ts: str) -> tuple[str, str] | None:
        """Return the ids of the conversation and the active run that have this message as status or first message."""
        for conversation_id, worker in self._workers.items():
            run = worker.state.run
            if run is None or run.place.channel != channel:
                continue
            if run.status.is_mine(ts) or ts == run.first.message.ts:
                return conversation_id, run.record.id
        return None

    def check_for_work(self, conversation_id: str) -> None:
        """Check a conversation for work: nudge its worker here, or claim it."""
        worker = self._workers.get(conversation_id)
        if worker is not None and not worker.is_over:
            worker.news.set()
        elif conversation_id in self._tasks:
            self._again.add(conversation_id)  # it is being claimed or released
        elif not self.is_closing:
            # Not in the context of the caller, which may be a run of another conversation.
            self._tasks[conversation_id] = asyncio.create_task(self._work(conversation_id), context=Context())

    async def _work(self, conversation_id: str) -> None:
        lease = worker = None
        bind_contextvars(conversation=conversation_id)  # of this task and its children
        try:
            lease = await self._runs.claim(conversation_id)
            if lease is None:
                return
            worker = ConversationWorker(lease, self._workspace)
            if self.is_closing:
                worker.suspend()
            self._workers[conversation_id] = worker
            try:
                await worker.work()
            except asyncio.CancelledError:
                if self.is_closing:  # the next owner delivers the outbox and looks up posts of unknown outcome
                    await lease.hand_over()
                raise
        except* LeaseLost:
            log.warning("lease.lost", conversation=conversation_id)
        except* Exception:  # a Slack handler's border: retry once the lease has expired
            log.exception("conversation.crashed", conversation=conversation_id)
        finally:
            if lease is not None:
                lease.abandon()
            self._workers.pop(conversation_id, None)
            if worker is None or not worker.is_parked:
                self._workspace.slots.leave(conversation_id)
            del self._tasks[conversation_id]
            has_news = worker is not None and worker.is_over and worker.news.is_set()
            if has_news or conversation_id in self._again:
                self._again.discard(conversation_id)
                self.check_for_work(conversation_id)
