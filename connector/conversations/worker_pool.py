"""The conversations that this process owns: work in each, from the claim to the release."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import structlog

from connector.conversations.worker import ConversationWorker
from connector.protocols import LeaseLost

if TYPE_CHECKING:
    from types import TracebackType

    from connector.protocols import ConversationLease, RunService
    from connector.runs.background_tasks import WorkspaceContext

log = structlog.get_logger(__name__)

# How long before the end of its grace the runs that have reached no boundary are cut: seconds, or half of a short one.
_CUT_BEFORE_S = 2.0


class WorkerPool:
    """Claims conversations in which something is to be done, and acts in them until there is nothing left.

    At its end the runs that are on are handed over within `shutdown_grace_s`.
    """

    def __init__(
        self, workplace: WorkspaceContext, runs: RunService, shutdown_grace_s: float, tools_grace_s: float | None = None
    ) -> None:
        self._workplace = workplace
        self._runs = runs
        self._grace_s = shutdown_grace_s
        self._tools_grace_s = shutdown_grace_s if tools_grace_s is None else tools_grace_s
        self._owned: dict[str, ConversationWorker] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self.is_closing = False

    async def __aenter__(self) -> Self:
        self._runs.watch(self._workplace.router.team, self.look_after)
        self._workplace.slots.watch(self.look_after)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the runs come to a boundary, and hand over what is on; and then what still waits for Slack."""
        self.suspend()
        last_s = min(_CUT_BEFORE_S, self._grace_s / 2)
        await self._ended(min(self._tools_grace_s, self._grace_s - last_s))
        for conversation in self._owned.values():
            conversation.cut()
        await self._ended(last_s / 2)
        for working in self._working.values():
            working.cancel()
        await self._ended(last_s / 2)

    async def _ended(self, within_s: float) -> None:
        if self._working:
            await asyncio.wait(self._working.values(), timeout=within_s)

    def suspend(self) -> None:
        """Begin nothing any more, and have what is on come to a boundary."""
        self.is_closing = True
        for conversation in self._owned.values():
            conversation.suspend()

    def running_at(self, channel: str, ts: str) -> tuple[str, str] | None:
        """The conversation here, and its run, whose status or first message this is."""
        for conversation_id, conversation in self._owned.items():
            execution = conversation.execution
            if execution is None or execution.place.channel != channel:
                continue
            if execution.view.is_status(ts) or ts == execution.first.message.ts:
                return conversation_id, execution.record.id
        return None

    def look_after(self, conversation_id: str) -> None:
        """See whether something is to be done in a conversation, here or by whoever owns it."""
        owned = self._owned.get(conversation_id)
        if owned is not None and not owned.is_over:
            owned.nudge()
        elif conversation_id in self._working:
            self._again.add(conversation_id)  # it is being claimed, or has just been given up
        elif not self.is_closing:
            self._working[conversation_id] = asyncio.create_task(self._work(conversation_id))

    async def _work(self, conversation_id: str) -> None:
        lease = conversation = None
        try:
            lease = await self._runs.claim(conversation_id)
            if lease is None:
                return
            conversation = ConversationWorker(lease, self._workplace)
            if self.is_closing:
                conversation.suspend()
            self._owned[conversation_id] = conversation
            await self._work_in(conversation, lease)
        except* LeaseLost:
            log.warning("lease.lost", conversation=conversation_id)
        except* Exception:  # a Slack handler's border: it is left alone until its lease has run out, and tried again
            log.exception("conversation.crashed", conversation=conversation_id)
        finally:
            if lease is not None:
                lease.abandon()
            self._owned.pop(conversation_id, None)
            if conversation is None or not conversation.is_parked:
                self._workplace.slots.leave(conversation_id)
            del self._working[conversation_id]
            has_news = conversation is not None and conversation.is_over and conversation.has_news
            if has_news or conversation_id in self._again:
                self._again.discard(conversation_id)
                self.look_after(conversation_id)

    async def _work_in(self, conversation: ConversationWorker, lease: ConversationLease) -> None:
        try:
            await conversation.work()
        except asyncio.CancelledError:
            if self.is_closing:  # whoever is next posts what was not posted, and looks up what was under way
                await lease.hand_over()
            raise
