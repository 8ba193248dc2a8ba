"""The tool calls of one run: begun early, of the batch that is on, or with their results to follow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.request_validation import is_plain
from orchestrator_interactive.loop.run import RunDenied
from orchestrator_interactive.loop.tool_call import ToolExecution, is_harmless
from orchestrator_interactive.loop.tool_results import TOO_MANY, late_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock
    from orchestrator_interactive.loop.injection_queue import InjectionQueue
    from orchestrator_interactive.loop.options import LoopOptions
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.tool_results import CompletedCall

log = structlog.get_logger(__name__)

# Of `max_parallel_tools`: an answer's calls run beside those that were postponed, of a run not more than this.
_MOST_AT_ONCE = 3


class ToolExecutor:
    """Every call of a run, from its beginning until it is settled: closed, with its row in the log.

    When the run is to end, what has not begun is cut at once, and what runs after the grace period; asked to end
    immediately, all of it.
    """

    def __init__(self, run: Run, options: LoopOptions) -> None:
        self._run = run
        self._options = options
        self._open: dict[ToolExecution, None] = {}
        self._turns = asyncio.Semaphore(options.max_parallel_tools)
        self._all_turns = asyncio.Semaphore(_MOST_AT_ONCE * options.max_parallel_tools)
        self._ids: set[str] = set()
        self._early: dict[str, ToolExecution] = {}
        self._pending: list[ToolExecution] = []
        self._settled: list[CompletedCall] = []
        self._grace: asyncio.TimerHandle | None = None
        self._is_cut = False

    @property
    def are_pending(self) -> bool:
        """Whether results are owed to the model."""
        return bool(self._pending)

    def disarm(self) -> None:
        """Nothing is to be cut any more."""
        if self._grace is not None:
            self._grace.cancel()

    @property
    def early_ids(self) -> Collection[str]:
        """The calls that began before their answer was complete, and are in no batch yet."""
        return self._early.keys()

    def know(self, settled: Iterable[CompletedCall]) -> None:
        """Take in what became of calls that the run made in other processes."""
        self._settled.extend(settled)
        self._ids.update(each.call.id for each in self._settled)

    @property
    def lost(self) -> list[CompletedCall]:
        """Those whose process ended while they were at work."""
        return [each for each in self._settled if each.outcome == "lost"]

    def told(self) -> list[dict[str, Any]]:
        """How each settled call ended, as progress tells of it. One that was dropped and came again is told once."""
        settled = enumerate(self._settled)
        return [each.told() for place, each in settled if not self._has_come_again(each, place + 1)]

    def _has_come_again(self, call: CompletedCall, since: int) -> bool:
        return call.was_dropped and any(map(call.is_same_as, self._settled[since:]))

    def is_used(self, call_id: str) -> bool:
        """Whether a call of the run had this id, other than those that wait for their answer."""
        return call_id in self._ids and call_id not in self._early

    def begin(self, calls: Sequence[ToolCall], settled: int = 0) -> list[ToolExecution]:
        """Begin the calls of a committed answer, or continue those that have begun early.

        Those beyond the most that one answer may make are refused; it has made `settled` calls before.
        """
        early = {call.id: self._early.pop(call.id) for call in calls if self._has_begun(call)}
        room = max(self._options.max_calls_per_answer - settled - len(early), 0)
        others = [call for call in calls if call.id not in early]
        begun = {call.id: self._begin(call) for call in others[:room]}
        if refused := others[room:]:
            most = self._options.max_calls_per_answer
            log.warning("tool.calls_refused", calls=settled + len(calls), max_calls_per_answer=most)
            begun |= {call.id: self._begin(call, TOO_MANY.format(most=most)) for call in refused}
        return [(early.get(call.id) or begun[call.id]) for call in calls]

    def _has_begun(self, call: ToolCall) -> bool:
        early = self._early.get(call.id)
        return early is not None and early.call == call

    def begin_early(self, block: ContentBlock, is_used: Callable[[str], bool], seen: set[str]) -> None:
        """Begin a call while the rest of its answer is on the way, where that can do no harm.

        `seen` collects the ids of the answer: of two calls with the same one, the second will be given another. So
        will a call whose id is blank.
        """
        if not isinstance(block, ToolCallBlock) or not is_plain(block.id) or block.id in seen:
            return
        if is_used(block.id) or self.is_used(block.id):
            return
        seen.add(block.id)
        if len(self._early) >= self._options.max_calls_per_answer:
            return
        is_wanted = is_harmless(self._run.tools.get(block.name)) and problem_of(block.input) is None
        if is_wanted and not self._run.ending.is_cancelled and not self._grace:
            self._early[block.id] = self._begin(ToolCall(id=block.id, name=block.name, arguments=block.input))

    def _begin(self, call: ToolCall, refused: str | None = None) -> ToolExecution:
        use = ToolExecution(self._run, call, self._options, (self._turns, self._all_turns), refused)
        self._open[use] = None
        self._ids.add(call.id)
        if self._is_cut or self._grace is not None:
            use.cut()
        return use

    async def settle(self, use: ToolExecution, row: dict[str, Any] | None) -> None:
        """Add the row of a closed call to the log, and close its events; without a row it leaves no trace there."""
        del self._open[use]
        self._settled.append(use.settled())
        try:
            if row is not None:
                await self._run.commit(row)
        finally:
            await use.report_cut()

    async def drop_early(self) -> None:
        """End the early calls that no answer has asked for after all: it failed, or was changed."""
        dropped, self._early = list(self._early.values()), {}
        self._ids.difference_update(use.call.id for use in dropped)
        for use in dropped:
            use.drop()
        await self._drop(dropped)

    async def _drop(self, uses: Iterable[ToolExecution]) -> None:
        dropped = list(uses)
        for use in dropped:
            use.cut()
        for use in dropped:
            await use.end()
            use.close()
            await self.settle(use, None)

    def postpone(self, uses: Collection[ToolExecution]) -> None:
        """Let the results of calls follow later.

        The calls of the next answer do not wait for them unless too many are at work in the run.
        """
        self._pending += uses
        self._turns = asyncio.Semaphore(self._options.max_parallel_tools)

    async def bring_in(self) -> None:
        """Commit the results of those pending calls that are over, as one row."""
        if any(use.is_over for use in self._pending):
            await self._commit_late(self._run.commit)

    async def _commit_late(self, commit: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        over = [use for use in self._pending if use.is_over]
        await commit(late_row([use.close() for use in over]))
        settled = set(over)
        self._pending = [use for use in self._pending if use not in settled]
        for use in over:
            await self.settle(use, None)
        await self.route_wishes(over)

    async def route_wishes(self, uses: Iterable[ToolExecution]) -> None:
        """Send what the hooks wished during these calls where it belongs, now that all their results stand."""
        for event, wish in [wish for use in uses for wish in use.wishes]:
            try:
                await self._run.route(wish, event)
            except RunDenied:
                log.info("hook.denied_too_late", hook=wish.hook_name, hook_event=event)

    async def wait_for_news(self, inbox: InjectionQueue) -> None:
        """Wait until a pending call is over, a message waits to be read, or the run is to end."""
        woken = asyncio.Event()

        def wake(*_: object) -> None:
            woken.set()

        for use in self._pending:
            use.watch(wake)
        try:
            with inbox.watch(wake), self._run.ending.watch(wake):
                while not self._is_news(inbox):  # whoever wrote may have taken it back
                    woken.clear()
                    await woken.wait()
        finally:
            for use in self._pending:
                use.watch(None)

    def _is_news(self, inbox: InjectionQueue) -> bool:
        return self._run.is_ending or len(inbox) > 0 or any(use.is_over for use in self._pending)

    def wind_up(self) -> None:
        """The run is to end: cut what has not begun, and the rest when the grace period is over."""
        for use in self._open:
            if self._run.stop.is_immediate or use.stage in ("waiting", "announced"):
                use.cut()
        if self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(self._options.stop_grace_s, self.cut)

    def cut(self) -> None:
        """Cut every call."""
        self._is_cut = True
        for use in self._open:
            use.cut()

    async def end(self) -> None:
        """Settle all that is left when the run comes to its end, however it does; what is in the log stays valid.

        In a run that is stopped or suspended, what is at work ends by itself, or is cut from elsewhere.
        """
        if not self._open:
            return
        if not self._run.ending.is_cancelled:
            self.cut()
        await self.drop_early()
        for use in self._pending:
            await use.end()
        try:
            if self._pending:
                # What was said before is the run's last word, and told as that.
                await self._commit_late(self._run.context.add_message)
        finally:
            await self._drop(self._open)
