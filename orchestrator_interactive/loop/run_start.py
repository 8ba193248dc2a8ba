"""Start a run: commit the prompt of a new run, or restore the state of a run to resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.loop.injection_queue import notice_row
from orchestrator_interactive.loop.resume import prompt_in, standing_of
from orchestrator_interactive.loop.run import changed
from orchestrator_interactive.loop.tool_results import lost_row
from orchestrator_interactive.loop.usage import spent_in
from orchestrator_interactive.transcript.framing import without_frames
from orchestrator_interactive.transcript.rows import delivered_in, user_row

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

    def __init__(self, run: Run, loop: Loop, queue: InjectionQueue, receipts: Receipts, memory: SessionState) -> None:
        self._run = run
        self._loop = loop
        self._queue = queue
        self._receipts = receipts
        self._memory = memory

    async def anew(self, prompt: str, message_id: str | None, left_behind: frozenset[str]) -> None:
        """Announce a new run, and commit its prompt after the messages that an earlier run left pending."""
        run = self._run
        self._reset_turn()
        await run.announce(events.EXECUTION_START, {"prompt": prompt})
        await run.progress("executing", prompt=prompt, run=run.id)
        if not self._memory.knows_log:
            await self._read_log()
        wish = await run.consult(events.PROMPT_SUBMIT, {"prompt": prompt})
        if self._memory.notices:
            await self._tell_notices()
        waiting = self._queue.drain()
        self._queue.restore([each for each in waiting if each.id not in left_behind])  # written after the prompt
        await self._loop.take_in(tuple(each for each in waiting if each.id in left_behind))
        await run.commit(user_row(without_frames(sendable(changed(wish, "prompt", prompt))), message_id))

    async def again(self) -> None:
        """Announce the run, and resume it from its log.

        Hook injections of `execution:start` are added after the missing tool results.

        Raises:
            RuntimeError: the conversation has no run.
        """
        run = self._run
        self._reset_turn()
        prompt = prompt_in(await run.context.get_messages())
        wish = await run.emit(events.EXECUTION_START, {"prompt": prompt, "resumed": True})
        rows = await run.context.get_messages()  # hooks may have changed them
        standing = standing_of(rows)
        self._know(standing)
        await run.progress("executing", prompt=standing.prompt, run=run.id)
        await self._take_out_delivered(rows)
        await self._loop.take_up(standing)
        self._memory.knows_log = True
        await run.give_way(run.route(wish, events.EXECUTION_START), events.EXECUTION_START)

    def _know(self, standing: ResumeState) -> None:
        run = self._run
        self._memory.spent = standing.before
        run.spent, run.iterations, run.parts = standing.spent, standing.iterations, standing.parts
        for ids, iteration in standing.deliveries:
            self._receipts.deliver(ids, iteration)

    def _reset_turn(self) -> None:
        if self._run.coordinator is not None:
            self._run.coordinator.reset_turn()

    async def _read_log(self) -> None:
        """Restore the state from the log, and add a row for postponed calls whose results were lost."""
        rows = await self._run.context.get_messages()
        await self._take_out_delivered(rows)
        if lost := lost_row(rows):
            await self._run.context.add_message(lost)
        if self._memory.spent is None:
            self._memory.spent = spent_in(rows)
        self._memory.knows_log = True

    async def _take_out_delivered(self, rows: Sequence[Row]) -> None:
        """Remove pending messages whose row was committed just before the earlier run was interrupted."""
        written = {message_id for row in rows for message_id in delivered_in(row)}
        if delivered := [each for each in self._queue.waiting() if each.id in written]:
            for each in delivered:
                self._queue.withdraw(each.id)
            await self._loop.take_back(delivered)

    async def _tell_notices(self) -> None:
        count = len(self._memory.notices)
        await self._run.context.add_message(notice_row(self._memory.notices[:count]))
        del self._memory.notices[:count]
