"""The tool calls of one run: early, in the answer at hand, and postponed."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.request_validation import is_plain
from orchestrator_interactive.loop.run import RunDenied
from orchestrator_interactive.loop.tool_call import ToolExecution, is_side_effect_free
from orchestrator_interactive.loop.tool_results import TOO_MANY, late_results_row, still_running_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock
    from orchestrator_interactive.loop.injection_queue import Injection, InjectionQueue
    from orchestrator_interactive.loop.options import LoopOptions
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.tool_results import CompletedCall

log = structlog.get_logger(__name__)

# Limit of a run's running calls, including postponed ones, as a multiple of `max_parallel_tools`.
_MAX_AT_ONCE = 3


class ToolExecutor:
    """All calls of a run, from their start until they are settled: closed, with a row in the log.

    A graceful stop cancels calls that have not started at once, and running calls after the grace period. An immediate
    stop cancels all calls at once.
    """

    def __init__(self, run: Run, options: LoopOptions) -> None:
        self._run = run
        self._options = options
        self._open: dict[ToolExecution, None] = {}
        self._slots = asyncio.Semaphore(options.max_parallel_tools)
        self._all_slots = asyncio.Semaphore(_MAX_AT_ONCE * options.max_parallel_tools)
        self._ids: set[str] = set()
        self._early: dict[str, ToolExecution] = {}
        self._pending: list[ToolExecution] = []
        self._completed: list[CompletedCall] = []
        self._grace: asyncio.TimerHandle | None = None
        self._is_cancelled = False

    @property
    def has_pending(self) -> bool:
        """Whether postponed calls have no result yet."""
        return bool(self._pending)

    def disarm(self) -> None:
        """Cancel the timer of the grace period."""
        if self._grace is not None:
            self._grace.cancel()

    @property
    def early_ids(self) -> Collection[str]:
        """The ids of calls that began before their answer was complete and are not in a batch yet."""
        return self._early.keys()

    def add_completed(self, completed: Iterable[CompletedCall]) -> None:
        """Add calls that the run made in earlier processes."""
        self._completed.extend(completed)
        self._ids.update(each.call.id for each in self._completed)

    @property
    def lost(self) -> list[CompletedCall]:
        """The calls whose process ended while they were running."""
        return [each for each in self._completed if each.outcome == "lost"]

    def to_event(self) -> list[dict[str, Any]]:
        """Return the settled calls for progress events, without dropped calls that were repeated later."""
        settled = enumerate(self._completed)
        return [each.to_event() for place, each in settled if not self._was_repeated(each, place + 1)]

    def _was_repeated(self, call: CompletedCall, since: int) -> bool:
        return call.was_dropped and any(map(call.is_same_as, self._completed[since:]))

    def is_used(self, call_id: str) -> bool:
        """Return whether a call of the run has this id, not counting early calls."""
        return call_id in self._ids and call_id not in self._early

    def begin(self, calls: Sequence[ToolCall], earlier_calls: int = 0) -> list[ToolExecution]:
        """Begin the calls of a committed answer, or continue those that began early.

        Calls beyond `max_calls_per_answer` are refused; `earlier_calls` is the number of the answer's earlier calls.
        """
        early = {call.id: self._early.pop(call.id) for call in calls if self._has_begun(call)}
        room = max(self._options.max_calls_per_answer - earlier_calls - len(early), 0)
        others = [call for call in calls if call.id not in early]
        begun = {call.id: self._begin(call) for call in others[:room]}
        if refused := others[room:]:
            most = self._options.max_calls_per_answer
            log.warning("tool.calls_refused", calls=earlier_calls + len(calls), max_calls_per_answer=most)
            begun |= {call.id: self._begin(call, TOO_MANY.format(most=most)) for call in refused}
        return [(early.get(call.id) or begun[call.id]) for call in calls]

    def _has_begun(self, call: ToolCall) -> bool:
        early = self._early.get(call.id)
        return early is not None and early.call == call

    def begin_early(self, block: ContentBlock, is_used: Callable[[str], bool], seen: set[str]) -> None:
        """Begin a call of a side-effect-free tool before its answer is complete.

        `seen` collects the ids of the answer. A duplicate or blank id does not begin early: the call gets another id
        later.
        """
        if not isinstance(block, ToolCallBlock) or not is_plain(block.id) or block.id in seen:
            return
        if is_used(block.id) or self.is_used(block.id):
            return
        seen.add(block.id)
        if len(self._early) >= self._options.max_calls_per_answer:
            return
        is_wanted = is_side_effect_free(self._run.tools.get(block.name)) and problem_of(block.input) is None
        if is_wanted and not self._run.ending.is_cancelled and not self._grace:
            self._early[block.id] = self._begin(ToolCall(id=block.id, name=block.name, arguments=block.input))

    def _begin(self, call: ToolCall, refused: str | None = None) -> ToolExecution:
        execution = ToolExecution(self._run, call, self._options, (self._slots, self._all_slots), refused)
        self._open[execution] = None
        self._ids.add(call.id)
        if self._is_cancelled or self._grace is not None:
            execution.cancel()
        return execution

    async def complete(self, execution: ToolExecution, row: dict[str, Any] | None) -> None:
        """Commit the row of a closed call, if given, and emit its missing end events."""
        del self._open[execution]
        self._completed.append(execution.completed_call())
        try:
            if row is not None:
                await self._run.commit(row)
        finally:
            await execution.report_cancelled()

    async def drop_early(self) -> None:
        """Cancel early calls that the answer does not contain, because it failed or was modified."""
        dropped, self._early = list(self._early.values()), {}
        self._ids.difference_update(execution.call.id for execution in dropped)
        for execution in dropped:
            execution.drop()
        await self._drop(dropped)

    async def _drop(self, executions: Iterable[ToolExecution]) -> None:
        dropped = list(executions)
        for execution in dropped:
            execution.cancel()
        for execution in dropped:
            await execution.end()
            execution.close()
            await self.complete(execution, None)

    def postpone(self, executions: Collection[ToolExecution]) -> None:
        """Postpone the results of running calls to a later row.

        Calls of the next answer do not wait for them, up to the run's limit of running calls.
        """
        self._pending += executions
        self._slots = asyncio.Semaphore(self._options.max_parallel_tools)

    async def commit_finished(self) -> None:
        """Commit the results of all postponed calls that have ended, as one row."""
        if any(execution.is_over for execution in self._pending):
            await self._commit_late(self._run.commit)

    async def _commit_late(self, commit: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        over = [execution for execution in self._pending if execution.is_over]
        await commit(late_results_row([execution.close() for execution in over]))
        settled = set(over)
        self._pending = [execution for execution in self._pending if execution not in settled]
        for execution in over:
            await self.complete(execution, None)
        await self.route_hook_results(over)

    async def route_hook_results(self, executions: Iterable[ToolExecution]) -> None:
        """Process the hook results of some calls after all their tool results are committed."""
        for event, hook_result in [hook_result for execution in executions for hook_result in execution.hook_results]:
            try:
                await self._run.route(hook_result, event)
            except RunDenied:
                log.info("hook.denial_ignored", hook=hook_result.hook_name, hook_event=event)

    async def wait_for_change(self, inbox: InjectionQueue) -> None:
        """Wait until a postponed call ends, a message is pending, or the run is to end."""
        woken = asyncio.Event()

        def wake(*_: object) -> None:
            woken.set()

        for execution in self._pending:
            execution.watch(wake)
        try:
            with inbox.watch(wake), self._run.ending.watch(wake):
                while not self._has_changed(inbox):  # the message may have been withdrawn
                    woken.clear()
                    await woken.wait()
        finally:
            for execution in self._pending:
                execution.watch(None)

    def _has_changed(self, inbox: InjectionQueue) -> bool:
        return self._run.is_ending or len(inbox) > 0 or any(execution.is_over for execution in self._pending)

    def begin_stop(self) -> None:
        """Cancel calls that have not started, and running calls after the grace period."""
        for execution in self._open:
            if self._run.stop.is_immediate or execution.stage in ("waiting", "announced"):
                execution.cancel()
        if self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(self._options.stop_grace_s, self.cancel)

    def cancel(self) -> None:
        """Cancel every call."""
        self._is_cancelled = True
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
        for execution in self._pending:
            await execution.end()
        try:
            if self._pending:
                # Not `commit`: this row must not complete the run's last text, which is the run's result.
                await self._commit_late(self._run.context.add_message)
        finally:
            await self._drop(self._open)


class AnswerCalls:
    """The calls of one answer."""

    def __init__(self, run: Run, calls: ToolExecutor) -> None:
        self._run = run
        self._calls = calls
        self._executions: list[ToolExecution] = []
        self._ended: deque[ToolExecution] = deque()
        self._is_urgent = False
        self._changed = asyncio.Event()

    async def run(self, row: dict[str, Any], calls: Sequence[ToolCall], inbox: InjectionQueue) -> None:
        """Commit the answer's row, run the calls, and commit each result as it arrives.

        An urgent message ends the wait: running calls are postponed. A stop cancels them. Once the answer is
        committed, each call gets a result. A suspended run still runs all calls, so that the next owner knows that each
        call started.
        """
        await self._run.write(row)
        self._executions = self._calls.begin(calls)
        await self._run.emit_text(row)
        await self._calls.drop_early()
        await self._collect(inbox)

    async def repeat(self, calls: Sequence[ToolCall], earlier_calls: int, inbox: InjectionQueue) -> None:
        """Run calls of an answer that is in the log already, and commit their results like `run`.

        `earlier_calls` is the number of the answer's other calls.
        """
        self._executions = self._calls.begin(calls, earlier_calls)
        await self._collect(inbox)

    async def _collect(self, inbox: InjectionQueue) -> None:
        left = dict.fromkeys(self._executions)
        with inbox.watch(self._on_injection), self._listening():
            while left:
                if self._ended:
                    execution = self._ended.popleft()
                    del left[execution]
                    await self._calls.complete(execution, execution.close())
                    await asyncio.sleep(0)  # a store without real I/O does not yield to other tasks
                elif self._is_urgent:
                    await self._postpone(left)
                    break
                else:
                    self._changed.clear()
                    await self._changed.wait()
        await self._calls.route_hook_results([execution for execution in self._executions if execution not in left])

    async def _postpone(self, executions: Collection[ToolExecution]) -> None:
        for execution in executions:
            await self._run.commit(still_running_row(execution.call))
        self._calls.postpone(executions)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        for execution in self._executions:
            if execution.is_over:
                self._ended.append(execution)
            else:
                execution.watch(partial(self._end, execution))
        try:
            yield
        finally:
            for execution in self._executions:
                execution.watch(None)

    def _end(self, execution: ToolExecution) -> None:
        self._ended.append(execution)
        self._changed.set()

    def _on_injection(self, injection: Injection) -> None:
        if injection.urgent:
            self._is_urgent = True
            self._changed.set()
