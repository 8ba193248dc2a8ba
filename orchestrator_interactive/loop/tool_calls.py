"""The tool calls of one run: early, in the answer at hand, and postponed."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.request_validation import is_plain
from orchestrator_interactive.loop.run import RunDenied
from orchestrator_interactive.loop.tool_call import ToolExecution, is_side_effect_free
from orchestrator_interactive.loop.tool_results import TOO_MANY, late_results_row, still_running_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock
    from orchestrator_interactive.loop.injection_queue import Injection
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.tool_results import CompletedCall

log = structlog.get_logger(__name__)

# Limit of a run's running calls, including postponed ones, as a multiple of `max_parallel_tools`.
_MAX_AT_ONCE = 3


class ToolExecutor:
    """All calls of a run, from their start until they are settled: closed, with a row in the log.

    At most `max_parallel_tools` calls run at once, and as many again after each postponement, up to three times as many
    in the run. The others wait in order. A graceful stop cancels calls that have not started at once, and running calls
    after the grace period. An immediate stop cancels all calls at once.

    Args:
        early: calls that began before their answer was complete and are not part of an answer yet, by id.
        postponed: running calls whose answer has got its row.
        completed: settled calls.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.early: dict[str, ToolExecution] = {}
        self.postponed: list[ToolExecution] = []
        self.completed: list[CompletedCall] = []
        self._open: dict[ToolExecution, None] = {}
        # Calls that wait for others to end, and the number of running calls by group; see `_start`.
        self._waiting: dict[ToolExecution, None] = {}
        self._running: Counter[int] = Counter()
        self._group = 0
        # Calls that are over, in the order of their ends; `_collect` takes those of its answer.
        self._ended: deque[ToolExecution] = deque()
        self._changed: asyncio.Future[None] | None = None
        self._is_urgent = False
        self._is_stopping = False
        # When the messages to the run were written, by id, and those that were taken as answers to questions.
        self._written_s = {each.id: each.order for each in run.inbox.pending.values()}
        self._replies: dict[str, ToolExecution] = {}

    def to_event(self) -> list[dict[str, Any]]:
        """Return the settled calls for progress events, without dropped calls that were repeated later."""
        return [
            each.to_event()
            for place, each in enumerate(self.completed)
            if not (each.was_dropped and any(map(each.is_same_as, self.completed[place + 1 :])))
        ]

    async def run_answer(self, row: dict[str, Any], calls: Sequence[ToolCall]) -> None:
        """Commit the answer's row, run its calls in parallel, and commit each result as it arrives.

        An urgent message ends the wait: running calls are postponed. So does any message if all calls that are left
        wait for a person. A stop cancels them. Once the answer is committed, each call gets a result. A suspended run
        still runs all calls that do not wait for a person, so that the next owner knows that each call started.
        """
        await self._run.write(row)
        executions = self._begin_all(calls, 0)
        await self._run.emit_text(row)
        if self.early:
            await self.drop_early()
        await self._collect(executions)

    async def repeat(self, calls: Sequence[ToolCall], earlier_calls: int) -> None:
        """Run calls of an answer that is in the log already, and commit their results like `run_answer`.

        `earlier_calls` is the number of the answer's other calls.
        """
        await self._collect(self._begin_all(calls, earlier_calls))

    def repeat_postponed(self, calls: Iterable[ToolCall]) -> None:
        """Run postponed calls whose answer has got its row, but not their results."""
        for call in calls:
            self.postponed.append(self._begin(call))

    def _begin_all(self, calls: Sequence[ToolCall], earlier_calls: int) -> list[ToolExecution]:
        """Begin the calls of a committed answer, or continue those that began early.

        Calls beyond `max_calls_per_answer` are refused.
        """
        early = {}
        if self.early:
            begun = [call.id for call in calls if call.id in self.early and self.early[call.id].call == call]
            early = {call_id: self.early.pop(call_id) for call_id in begun}
        most = self._run.options.max_calls_per_answer
        room = max(most - earlier_calls - len(early), 0)
        if len(calls) - len(early) > room:
            log.warning("tool.calls_refused", calls=earlier_calls + len(calls), max_calls_per_answer=most)
        executions = []
        for call in calls:
            self._run.session_state.note_call(call.id)
            execution = early.get(call.id)
            if execution is None:
                execution = self._begin(call, None if room > 0 else TOO_MANY.format(most=most))
                room -= 1
            executions.append(execution)
        return executions

    def begin_early(self, block: ContentBlock, is_used: Callable[[str], bool], seen: set[str]) -> None:
        """Begin a call of a side-effect-free tool before its answer is complete.

        `seen` collects the ids of the answer. A duplicate or blank id does not begin early: the call gets another id
        later.
        """
        if not isinstance(block, ToolCallBlock) or not is_plain(block.id) or block.id in seen:
            return
        if is_used(block.id) or self._run.session_state.has_used(block.id):
            return
        seen.add(block.id)
        if len(self.early) >= self._run.options.max_calls_per_answer:
            return
        is_wanted = is_side_effect_free(self._run.tools.get(block.name)) and problem_of(block.input) is None
        if is_wanted and not self._run.ending.is_cancelled and not self._is_stopping:
            self.early[block.id] = self._begin(ToolCall(id=block.id, name=block.name, arguments=block.input))

    def _begin(self, call: ToolCall, refusal: str | None = None) -> ToolExecution:
        execution = ToolExecution(self._run, call, self._group, self._on_over, self._on_awaiting)
        self._open[execution] = None
        if (problem := refusal or execution.problem()) is not None:
            execution.refuse(problem)
        else:
            self._waiting[execution] = None
            if self._is_stopping:
                execution.cancel()
            else:
                self._start(execution)
        return execution

    def _start(self, execution: ToolExecution) -> bool:
        """Start a waiting call if there is room for it: in its group, and in the run.

        A group is the calls since the last postponement.
        """
        most = self._run.options.max_parallel_tools
        if self._running[execution.group] >= most or sum(self._running.values()) >= _MAX_AT_ONCE * most:
            return False
        del self._waiting[execution]
        self._running[execution.group] += 1
        execution.begin()
        return True

    def _on_over(self, execution: ToolExecution) -> None:
        # Also for a tool that ignores its cancellation: it must not block waiting calls.
        execution.is_over = True
        if execution in self._waiting:
            del self._waiting[execution]
        else:
            self._running[execution.group] -= 1
            for following in self._waiting:
                if self._start(following):
                    break
        self._ended.append(execution)
        self.wake()

    def on_injection(self, injection: Injection) -> None:
        """End the wait for results if the message is urgent, and the wait for news in any case.

        A message answers the oldest question that takes one; each answers one question.
        """
        self._is_urgent = self._is_urgent or injection.urgent
        self._written_s[injection.id] = injection.order
        self._answer_by(injection.id)
        self.wake()

    def _on_awaiting(self) -> None:
        """Let messages answer a question of an earlier process: they have arrived before it is asked again."""
        for message_id, written_s in self._written_s.items():
            if written_s is not None and self._run.inbox.known(message_id) is not None:
                self._answer_by(message_id, written_s)
        self.wake()

    def _answer_by(self, message_id: str, written_s: float | None = None) -> None:
        if message_id not in self._replies:
            asking = next((each for each in self._open if each.context.take_message(written_s)), None)
            if asking is not None:
                self._replies[message_id] = asking

    def wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _wait(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await self._changed
        finally:
            self._changed = None

    async def _collect(self, executions: list[ToolExecution]) -> None:
        left = dict.fromkeys(executions)
        self._ended = deque(execution for execution in executions if execution.is_over)
        self._is_urgent = bool(self._run.inbox.pending) and self._run.inbox.has_urgent
        with self._run.ending.watch(self.wake):
            while left:
                if self._ended:
                    execution = self._ended.popleft()
                    if execution in left:
                        del left[execution]
                        await self._complete(execution, execution.close())
                        if self._ended:
                            await asyncio.sleep(0)  # a store without real I/O does not yield to other tasks
                elif self._run.is_suspended and all(execution.context.is_awaiting for execution in left):
                    break  # the next owner repeats them
                elif self._is_urgent or self._are_delaying_messages(left):
                    await self._postpone(left)
                    break
                else:
                    await self._wait()
        if heard := [each for each in executions if each.hook_results and each not in left]:
            await self._route_hook_results(heard)

    def _are_delaying_messages(self, executions: Collection[ToolExecution]) -> bool:
        """Return whether messages wait only for calls that wait for a person, and are not their answer."""
        if not all(execution.context.is_awaiting for execution in executions):
            return False
        answered = {message_id for message_id, execution in self._replies.items() if execution in executions}
        return not answered.issuperset(self._run.inbox.pending)

    async def _postpone(self, executions: Collection[ToolExecution]) -> None:
        """Postpone the results of running calls to a later row. Calls of the next answer do not wait for them."""
        for execution in executions:
            await self._run.commit(still_running_row(execution.call))
        self.postponed += executions
        self._group += 1

    async def _complete(self, execution: ToolExecution, row: dict[str, Any] | None) -> None:
        """Commit the row of a closed call, if given, and emit its missing end events."""
        del self._open[execution]
        self.completed.append(execution.completed)
        try:
            if row is not None:
                await self._run.commit(row)
        finally:
            if execution.lacks_events:
                await execution.report_cancelled()

    async def drop_early(self) -> None:
        """Cancel early calls that the answer does not contain, because it failed or was modified."""
        dropped, self.early = list(self.early.values()), {}
        for execution in dropped:
            execution.was_dropped = True
        await self._drop(dropped)

    async def _drop(self, dropped: Collection[ToolExecution]) -> None:
        for execution in dropped:
            execution.cancel()
        await self._end_of(dropped)
        for execution in list(dropped):
            execution.close()
            await self._complete(execution, None)

    async def _end_of(self, executions: Collection[ToolExecution]) -> None:
        """Wait until the calls are over. Cancelling the waiter cancels them, and still waits for them."""
        cancelled: asyncio.CancelledError | None = None
        while not all(execution.is_over for execution in executions):
            try:
                await self._wait()
            except asyncio.CancelledError as e:
                cancelled = e
                for execution in executions:
                    execution.cancel()
        if cancelled is not None:
            raise cancelled

    async def commit_finished(self, commit: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """Commit the results of all postponed calls that have ended, as one row."""
        over = [execution for execution in self.postponed if execution.is_over]
        if not over:
            return
        await commit(late_results_row([execution.close() for execution in over]))
        self.postponed = [execution for execution in self.postponed if execution not in over]
        for execution in over:
            await self._complete(execution, None)
        await self._route_hook_results(over)

    async def _route_hook_results(self, executions: Iterable[ToolExecution]) -> None:
        """Process the hook results of some calls after all their tool results are committed."""
        for execution in executions:
            for event, hook_result in execution.hook_results:
                try:
                    await self._run.route(hook_result, event)
                except RunDenied:
                    log.info("hook.denial_ignored", hook=hook_result.hook_name, hook_event=event)

    async def wait_for_change(self) -> None:
        """Wait until a postponed call ends, a message is pending, or the run is to end."""
        run = self._run
        with run.ending.watch(self.wake):
            while not (run.is_ending or run.inbox.pending or any(execution.is_over for execution in self.postponed)):
                await self._wait()

    def begin_stop(self) -> None:
        """Cancel calls that have not started, and running calls after the grace period."""
        for execution in self._open:
            if self._run.stop.is_immediate or execution.stage in ("waiting", "announced"):
                execution.cancel()
        if not self._is_stopping:
            self._is_stopping = True
            self._run.deadlines.set("grace", self._run.options.stop_grace_s, self.cancel)

    def cancel(self) -> None:
        """Cancel every call."""
        for execution in self._open:
            execution.cancel()

    async def end(self) -> None:
        """Settle all remaining calls at the end of the run, so that the log stays valid.

        In a stopped or suspended run, running calls end by themselves or through the stop's timer.
        """
        if not self._open:
            return
        if not self._run.ending.is_cancelled:
            self.cancel()
        await self.drop_early()
        if self._run.is_suspended:  # the next owner repeats calls that wait for a person
            self.postponed = [execution for execution in self.postponed if not execution.context.is_awaiting]
        await self._end_of(self.postponed)
        try:
            # Not `commit`: this row must not complete the run's last text, which is the run's result.
            await self.commit_finished(self._run.context.add_message)
        finally:
            await self._drop(self._open)
