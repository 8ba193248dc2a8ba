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
from orchestrator_interactive.loop.tasks import Deadlines
from orchestrator_interactive.loop.tool_call import ToolExecution, is_side_effect_free
from orchestrator_interactive.loop.tool_results import TOO_MANY, late_results_row, still_running_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

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

    def __init__(self, run: Run, options: LoopOptions, inbox: InjectionQueue) -> None:
        self._run = run
        self._options = options
        self._inbox = inbox
        self._slots = _Slots(options.max_parallel_tools)
        self._deadlines = Deadlines()
        self._open: dict[ToolExecution, None] = {}
        self._ids: set[str] = set()
        self._early: dict[str, ToolExecution] = {}
        self._postponed: list[ToolExecution] = []
        self._completed: list[CompletedCall] = []
        # Calls that are over, in the order of their ends; `_collect` takes those of its answer.
        self._ended: deque[ToolExecution] = deque()
        self._changed: asyncio.Future[None] | None = None
        self._is_urgent = False
        self._grace_timer: asyncio.TimerHandle | None = None
        self._is_cancelled = False

    @property
    def has_postponed(self) -> bool:
        """Whether postponed calls have no result yet."""
        return bool(self._postponed)

    @property
    def early_ids(self) -> Collection[str]:
        """The ids of calls that began before their answer was complete and are not part of an answer yet."""
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

    async def run_answer(self, row: dict[str, Any], calls: Sequence[ToolCall]) -> None:
        """Commit the answer's row, run its calls in parallel, and commit each result as it arrives.

        An urgent message ends the wait: running calls are postponed. A stop cancels them. Once the answer is
        committed, each call gets a result. A suspended run still runs all calls, so that the next owner knows that each
        call started.
        """
        await self._run.write(row)
        executions = self._begin_all(calls, 0)
        await self._run.emit_text(row)
        if self._early:
            await self.drop_early()
        await self._collect(executions)

    async def repeat(self, calls: Sequence[ToolCall], earlier_calls: int) -> None:
        """Run calls of an answer that is in the log already, and commit their results like `run_answer`.

        `earlier_calls` is the number of the answer's other calls.
        """
        await self._collect(self._begin_all(calls, earlier_calls))

    def _begin_all(self, calls: Sequence[ToolCall], earlier_calls: int) -> list[ToolExecution]:
        """Begin the calls of a committed answer, or continue those that began early.

        Calls beyond `max_calls_per_answer` are refused.
        """
        early = {call.id: self._early.pop(call.id) for call in calls if self._has_begun(call)} if self._early else {}
        most = self._options.max_calls_per_answer
        room = max(most - earlier_calls - len(early), 0)
        if len(calls) - len(early) > room:
            log.warning("tool.calls_refused", calls=earlier_calls + len(calls), max_calls_per_answer=most)
        executions = []
        for call in calls:
            execution = early.get(call.id)
            if execution is None:
                execution = self._begin(call, None if room > 0 else TOO_MANY.format(most=most))
                room -= 1
            executions.append(execution)
        return executions

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
        if is_wanted and not self._run.ending.is_cancelled and not self._grace_timer:
            self._early[block.id] = self._begin(ToolCall(id=block.id, name=block.name, arguments=block.input))

    def _begin(self, call: ToolCall, refusal: str | None = None) -> ToolExecution:
        execution = ToolExecution(self._run, call, self._options, self._deadlines, self._on_over)
        self._open[execution] = None
        self._ids.add(call.id)
        if (problem := refusal or execution.problem()) is not None:
            execution.refuse(problem)
        elif self._is_cancelled or self._grace_timer is not None:
            execution.cancel()
        else:
            self._slots.begin(execution)
        return execution

    def _on_over(self, execution: ToolExecution) -> None:
        # Also for a tool that ignores its cancellation: it must not block waiting calls.
        self._slots.free(execution)
        self._ended.append(execution)
        self.wake()

    def on_injection(self, injection: Injection) -> None:
        """End the wait for results if the message is urgent, and the wait for news in any case."""
        self._is_urgent = self._is_urgent or injection.urgent
        self.wake()

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
        self._ended = deque(each for each in executions if each.is_over)
        self._is_urgent = self._inbox.has_urgent
        while left:
            if self._ended:
                execution = self._ended.popleft()
                if execution in left:
                    del left[execution]
                    await self._complete(execution, execution.close())
                    if self._ended:
                        await asyncio.sleep(0)  # a store without real I/O does not yield to other tasks
            elif self._is_urgent:
                await self._postpone(left)
                break
            else:
                await self._wait()
        await self._route_hook_results(each for each in executions if each not in left)

    async def _postpone(self, executions: Collection[ToolExecution]) -> None:
        """Postpone the results of running calls to a later row.

        Calls of the next answer do not wait for them, up to the run's limit of running calls.
        """
        for execution in executions:
            await self._run.commit(still_running_row(execution.call))
        self._postponed += executions
        self._slots.begin_group()

    async def _complete(self, execution: ToolExecution, row: dict[str, Any] | None) -> None:
        """Commit the row of a closed call, if given, and emit its missing end events."""
        del self._open[execution]
        self._completed.append(execution.completed_call())
        try:
            if row is not None:
                await self._run.commit(row)
        finally:
            if execution.owes_events:
                await execution.report_cancelled()

    async def drop_early(self) -> None:
        """Cancel early calls that the answer does not contain, because it failed or was modified."""
        if not self._early:
            return
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
            await self._complete(execution, None)

    async def commit_finished(self) -> None:
        """Commit the results of all postponed calls that have ended, as one row."""
        if any(execution.is_over for execution in self._postponed):
            await self._commit_late(self._run.commit)

    async def _commit_late(self, commit: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        over = [execution for execution in self._postponed if execution.is_over]
        await commit(late_results_row([execution.close() for execution in over]))
        settled = set(over)
        self._postponed = [execution for execution in self._postponed if execution not in settled]
        for execution in over:
            await self._complete(execution, None)
        await self._route_hook_results(over)

    async def _route_hook_results(self, executions: Iterable[ToolExecution]) -> None:
        """Process the hook results of some calls after all their tool results are committed."""
        for event, hook_result in [hook_result for execution in executions for hook_result in execution.hook_results]:
            try:
                await self._run.route(hook_result, event)
            except RunDenied:
                log.info("hook.denial_ignored", hook=hook_result.hook_name, hook_event=event)

    async def wait_for_change(self) -> None:
        """Wait until a postponed call ends, a message is pending, or the run is to end."""
        with self._run.ending.watch(self.wake):
            while not self._has_changed():
                await self._wait()

    def _has_changed(self) -> bool:
        return self._run.is_ending or len(self._inbox) > 0 or any(execution.is_over for execution in self._postponed)

    def begin_stop(self) -> None:
        """Cancel calls that have not started, and running calls after the grace period."""
        for execution in self._open:
            if self._run.stop.is_immediate or execution.stage in ("waiting", "announced"):
                execution.cancel()
        if self._grace_timer is None:
            self._grace_timer = asyncio.get_running_loop().call_later(self._options.stop_grace_s, self.cancel)

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
        for execution in self._postponed:
            await execution.end()
        try:
            if self._postponed:
                # Not `commit`: this row must not complete the run's last text, which is the run's result.
                await self._commit_late(self._run.context.add_message)
        finally:
            await self._drop(self._open)

    def close(self) -> None:
        """Cancel the timers, after `end`."""
        self._deadlines.close()
        if self._grace_timer is not None:
            self._grace_timer.cancel()


class _Slots:
    """Bounds the running calls: `most` per group, and three times as many in the run. The others wait in order.

    A group is the calls since the last postponement.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._group = 0
        self._running: dict[ToolExecution, int] = {}
        self._running_of: Counter[int] = Counter()
        self._waiting: dict[ToolExecution, int] = {}

    def begin_group(self) -> None:
        self._group += 1

    def begin(self, execution: ToolExecution) -> None:
        self._waiting[execution] = self._group
        if self._has_room(self._group):
            self._start(execution)

    def free(self, execution: ToolExecution) -> None:
        self._waiting.pop(execution, None)
        group = self._running.pop(execution, None)
        if group is None:
            return
        self._running_of[group] -= 1
        following = next((each for each, its in self._waiting.items() if self._has_room(its)), None)
        if following is not None:
            self._start(following)

    def _has_room(self, group: int) -> bool:
        return len(self._running) < _MAX_AT_ONCE * self._most and self._running_of[group] < self._most

    def _start(self, execution: ToolExecution) -> None:
        group = self._running[execution] = self._waiting.pop(execution)
        self._running_of[group] += 1
        execution.begin()
