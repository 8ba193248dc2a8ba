"""Start a run: commit the prompt of a new run, or restore the state of a run to resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.loop.injection_queue import notice_row
from orchestrator_interactive.loop.resume import prompt_in, resume_state_of
from orchestrator_interactive.loop.run import changed
from orchestrator_interactive.loop.tool_results import lost_results_row
from orchestrator_interactive.loop.usage import usage_in
from orchestrator_interactive.transcript.framing import without_frames
from orchestrator_interactive.transcript.rows import delivered_ids_in, user_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator_interactive.loop.injection_queue import InjectionQueue
    from orchestrator_interactive.loop.loop import Loop
    from orchestrator_interactive.loop.receipts import Receipts
    from orchestrator_interactive.loop.resume import ResumeState
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.session_state import SessionState

    Row = dict[str, Any]


class RunStart:
    """The start of one run."""

    def __init__(
        self, run: Run, loop: Loop, queue: InjectionQueue, receipts: Receipts, session_state: SessionState
    ) -> None:
        self._run = run
        self._loop = loop
        self._queue = queue
        self._receipts = receipts
        self._session_state = session_state

    async def new(self, prompt: str, message_id: str | None, left_pending: frozenset[str]) -> None:
        """Announce a new run, and commit its prompt after the messages that an earlier run left pending."""
        run = self._run
        self._reset_turn()
        await run.announce(events.EXECUTION_START, {"prompt": prompt})
        await run.progress("executing", prompt=prompt, run=run.id)
        if not self._session_state.knows_log:
            await self._load_log()
        hook_result = await run.consult(events.PROMPT_SUBMIT, {"prompt": prompt})
        if self._session_state.notices:
            await self._commit_notices()
        waiting = self._queue.drain()
        self._queue.restore([each for each in waiting if each.id not in left_pending])  # written after the prompt
        await self._loop.deliver(tuple(each for each in waiting if each.id in left_pending))
        await run.commit(user_row(without_frames(sendable(changed(hook_result, "prompt", prompt))), message_id))

    async def resume(self) -> None:
        """Announce the run, and resume it from its log.

        Hook injections of `execution:start` are added after the missing tool results.

        Raises:
            RuntimeError: the conversation has no run.
        """
        run = self._run
        self._reset_turn()
        prompt = prompt_in(await run.context.get_messages())
        hook_result = await run.emit(events.EXECUTION_START, {"prompt": prompt, "resumed": True})
        rows = await run.context.get_messages()  # hooks may have changed them
        state = resume_state_of(rows)
        self._restore_state(state)
        await run.progress("executing", prompt=state.prompt, run=run.id)
        await self._remove_delivered(rows)
        await self._loop.resume(state)
        self._session_state.knows_log = True
        await run.await_hooks(run.route(hook_result, events.EXECUTION_START), events.EXECUTION_START)

    def _restore_state(self, state: ResumeState) -> None:
        run = self._run
        self._session_state.usage = state.earlier_usage
        run.usage, run.iterations, run.interim_texts = state.usage, state.iterations, state.interim_texts
        for ids, iteration in state.deliveries:
            self._receipts.deliver(ids, iteration)

    def _reset_turn(self) -> None:
        if self._run.coordinator is not None:
            self._run.coordinator.reset_turn()

    async def _load_log(self) -> None:
        """Restore the state from the log, and add a row for postponed calls whose results were lost."""
        rows = await self._run.context.get_messages()
        await self._remove_delivered(rows)
        if lost := lost_results_row(rows):
            await self._run.context.add_message(lost)
        if self._session_state.usage is None:
            self._session_state.usage = usage_in(rows)
        self._session_state.knows_log = True

    async def _remove_delivered(self, rows: Sequence[Row]) -> None:
        """Remove pending messages whose row was committed just before the earlier run was interrupted."""
        committed = {message_id for row in rows for message_id in delivered_ids_in(row)}
        if delivered := [each for each in self._queue.waiting() if each.id in committed]:
            for each in delivered:
                self._queue.withdraw(each.id)
            await self._loop.mark_delivered(delivered)

    async def _commit_notices(self) -> None:
        count = len(self._session_state.notices)
        await self._run.context.add_message(notice_row(self._session_state.notices[:count]))
        del self._session_state.notices[:count]
