"""Watch the deadlines of waiting states."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.interactions.errors import InteractionError
from orchestrator_interactive.interactions.states import AgentResultState, WaitingState
from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator_interactive.interactions.records import OpenCall
    from orchestrator_interactive.interactions.stack import InteractionStack
    from orchestrator_interactive.interactions.states import BaseState

log = structlog.get_logger(__name__)


class DeadlineWatch:
    """Watches the waiting states of one conversation, those that are pushed and those that `check` finds in its log.

    At the deadline of a wait that is not over, an open request to an agent gets a result with the status "timeout".
    Tool calls stay open: the loop limits their time. The requests of a tool call that is interrupted get a result with
    the status "unknown" when the run is resumed: nothing receives their answers.

    Args:
        report: called with each overdue wait.
    """

    def __init__(self, stack: InteractionStack, report: Callable[[WaitingState], Awaitable[object]]) -> None:
        self._stack = stack
        self._report = report
        self._timers: dict[WaitingState, asyncio.TimerHandle] = {}
        self._reported: set[WaitingState] = set()
        self._expiring: set[asyncio.Task[None]] = set()
        stack.on_push = self._watch

    async def check(self, *, is_resumed: bool = False) -> None:
        """Expire the overdue waits in the log, and watch the others."""
        try:
            if is_resumed:
                await self._end_interrupted(await self._stack.open_calls())
            waits = await self._stack.pending_waits()
        except (InteractionError, StoreError) as e:
            log.warning("wait.not_checked", error=str(e))
            return
        for wait in waits:
            if wait.is_over():
                await self._expire(wait)
        self._watch([wait for wait in waits if not wait.is_over()])

    async def _end_interrupted(self, calls: Sequence[OpenCall]) -> None:
        if any(call.kind == "tool" for call in calls):
            requests = [call.id for call in calls if call.kind == "agent"]
            await self._stack.push(*[AgentResultState(each, {"status": "unknown"}) for each in requests])

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._expiring:
            task.cancel()

    def _watch(self, states: Sequence[BaseState]) -> None:
        for state in states:
            if isinstance(state, WaitingState) and state.deadline is not None and state not in self._timers:
                delay_s = max(state.deadline - time.time(), 0)
                self._timers[state] = asyncio.get_running_loop().call_later(delay_s, self._expire_soon, state)

    def _expire_soon(self, wait: WaitingState) -> None:
        del self._timers[wait]
        task = asyncio.create_task(self._expire(wait))
        self._expiring.add(task)
        task.add_done_callback(self._expiring.discard)

    async def _expire(self, wait: WaitingState) -> None:
        try:
            if wait in self._reported or wait not in await self._stack.pending_waits():
                return
            if wait.kind == "agent" and wait.correlation_id is not None:
                await self._stack.push(AgentResultState(wait.correlation_id, {"status": "timeout"}))
        except (InteractionError, StoreError) as e:
            log.warning("wait.not_expired", correlation_id=wait.correlation_id, error=str(e))
            return
        self._reported.add(wait)
        log.warning("wait.overdue", kind=wait.kind, correlation_id=wait.correlation_id)
        await self._report(wait)
