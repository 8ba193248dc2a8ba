"""The loop: drain, ask, run tools, append."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from orchestrator_interactive.interactions.errors import Fenced
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.arguments import problem_of, writable
from orchestrator_interactive.kernel.contracts.messages import (
    RedactedThinkingBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
)
from orchestrator_interactive.loop.injection_queue import injection_row
from orchestrator_interactive.loop.model_call import INTERRUPTED, ModelCaller
from orchestrator_interactive.loop.outcome import SUSPENDED, Incomplete, RunOutcome, incomplete_row, outcome_of
from orchestrator_interactive.loop.run import RunDenied, RunStopped, RunSuspended
from orchestrator_interactive.loop.tool_calls import AnswerCalls, ToolExecutor
from orchestrator_interactive.loop.tool_results import unknown_row
from orchestrator_interactive.loop.usage import with_usage
from orchestrator_interactive.transcript.answer_parts import mark_partial
from orchestrator_interactive.transcript.rows import assistant_row, distinct, refused_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatResponse, ContentBlock
    from orchestrator_interactive.kernel.contracts.protocols import Provider
    from orchestrator_interactive.loop.injection_queue import Injection, InjectionQueue
    from orchestrator_interactive.loop.options import LoopOptions
    from orchestrator_interactive.loop.receipts import Receipts
    from orchestrator_interactive.loop.resume import ResumeState
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.streaming_call import Model
    from orchestrator_interactive.transcript.answer_parts import PartialReason

log = structlog.get_logger(__name__)

INJECTION_APPLIED = "injection:applied"

Call = TypeVar("Call", ToolCall, ToolCallBlock)

# Finish reasons of answers that were truncated at a length limit, and of refused answers.
_TRUNCATED = ("max_tokens", "length", "model_context_window_exceeded", "pause_turn")
_REFUSED = ("refusal", "content_filter")
_MAX_CONTINUATIONS = 3
# Time for the final answer after `max_duration_s`, in seconds.
_FINAL_ANSWER_S = 60.0


class Loop:
    """One run: from the prompt, or from the state in the log, to the answer."""

    def __init__(self, run: Run, inbox: InjectionQueue, receipts: Receipts, options: LoopOptions) -> None:
        self._run = run
        self._inbox = inbox
        self._receipts = receipts
        self._options = options
        self._began_s = asyncio.get_running_loop().time()
        self._continuations = 0
        self._turns = 0
        self._must_answer = False
        self._answered: RunOutcome | None = None
        self._is_out_of_time = False
        self._reason: str | None = None
        self.calls = ToolExecutor(run, options)

    async def run(self, begin: Callable[[], Awaitable[None]], providers: Mapping[str, Provider]) -> RunOutcome:
        """Run `begin` and the loop, and settle all tool calls on every exit path.

        Raises:
            LLMError: the model could not answer.
        """
        with self._run.stop.watch(self.calls.begin_stop):
            try:
                return await self._until_time_is_up(begin, providers)
            except RunDenied as e:
                await self._run.show(self._run.interim_texts.flush())
                return RunOutcome(f"Operation denied: {self._run.without_secrets(str(e))}", "incomplete", "denied")
            except RunSuspended:
                return SUSPENDED
            except RunStopped:
                await self.calls.end()
                if self._run.session_stop.is_cancelled:
                    await self._run.announce(events.CANCEL_REQUESTED, {"immediate": self._run.stop.is_immediate})
                elif self._is_out_of_time:
                    return RunOutcome(self._run.interim_texts.pending_text, "incomplete", "max_duration_s")
                return RunOutcome(self._run.interim_texts.pending_text, "cancelled")
            except Fenced:
                raise  # another process owns the run now, and posts its texts
            except Exception:
                await self._run.show(self._run.interim_texts.flush())
                raise
            finally:
                await self.calls.end()
                self.calls.disarm()

    async def resume(self, state: ResumeState) -> None:
        """Resume a run from its log: emit its texts again, and settle its unanswered tool calls.

        Calls of tools marked `side_effect_free` are repeated; the others get the result "outcome unknown". The
        `resumed` event lists all calls of the run with an unknown outcome, also those of earlier takeovers.
        """
        run, tools = self._run, self._run.tools
        self._turns, self._continuations = state.turns, state.continuations
        self._must_answer = not state.last_tools.isdisjoint(self._options.force_respond_tools)
        repeated, unknown = state.unanswered(tools)
        self.calls.add_completed([*state.completed(tools), *unknown, *state.late(tools)])
        lost = self.calls.lost
        retried = [each.name for each in repeated if problem_of(each.call.arguments) is None]
        names = {"unknown": [each.name for each in lost], "retried": retried}
        await run.progress("resumed", **names, tools=[each.to_event() for each in lost])
        for part in state.texts:
            await run.show(part)
        if run.is_suspended:
            raise RunSuspended
        for each in unknown:
            await run.commit(unknown_row(each.call))
        await AnswerCalls(run, self.calls).repeat(
            [each.call for each in repeated], state.last_calls - len(repeated), self._inbox
        )
        if state.lost:
            await run.commit(state.lost)
        self._answered = state.outcome

    async def _until_time_is_up(
        self, begin: Callable[[], Awaitable[None]], providers: Mapping[str, Provider]
    ) -> RunOutcome:
        clock, limit_s, timers = asyncio.get_running_loop(), self._options.max_duration_s, list[asyncio.TimerHandle]()
        if limit_s is not None:
            timers.append(clock.call_later(limit_s, self.calls.begin_stop))
            timers.append(clock.call_later(limit_s + _FINAL_ANSWER_S, self._run_out_of_time))
        try:
            await begin()
            return await self._loop(ModelCaller(self._run, providers, self.calls, self._inbox, self._options))
        finally:
            for timer in timers:
                timer.cancel()

    def _run_out_of_time(self) -> None:
        self._is_out_of_time = True
        self._run.stop.request_graceful()

    async def _loop(self, caller: ModelCaller) -> RunOutcome:
        run = self._run
        if self._answered is not None and await self._is_done():
            return self._answered
        while True:
            run.check_end()
            await self.calls.commit_finished()
            await self.deliver(self._inbox.drain())  # injection points 1 and, after tools, 3
            tools_allowed = self._is_within_limits() and not self._must_answer
            await run.progress("thinking", iteration=run.iterations + 1)
            answer = await caller.ask(tools_allowed=tools_allowed)
            if answer is None:  # repeat the model call with the injections that have arrived
                continue
            run.iterations += 1
            may_call = tools_allowed and answer.finish_reason not in _REFUSED
            calls = caller.model.provider.parse_tool_calls(answer) if may_call else []
            if calls:
                await self._run_tools(caller, answer, calls)
                continue
            self._must_answer = False
            await self.calls.drop_early()
            outcome = await self._commit_text(answer)
            if outcome is None:
                continue
            if self.calls.has_pending:
                await self.calls.wait_for_change(self._inbox)
            elif await self._is_done():
                return self._warn_of_unknown_cost(outcome)

    async def _is_done(self) -> bool:
        """Return whether the queue was empty and is now closed; else commit the pending injections."""
        self._run.check_end()
        late = self._inbox.drain_or_close()  # injection point 2
        await self.deliver(late)
        return not late

    def _is_within_limits(self) -> bool:
        """Return whether the run is within its limits; if not, set `_reason`, and the next answer is the last."""
        options, run = self._options, self._run
        now_s = asyncio.get_running_loop().time()
        if self._turns >= options.max_iterations:
            self._reason = "max_iterations"
        elif options.max_tokens is not None and run.usage.tokens >= options.max_tokens:
            self._reason = "max_tokens"
        elif options.max_cost_usd is not None and (run.usage.cost_usd or 0) >= options.max_cost_usd:
            self._reason = "max_cost_usd"
        elif options.max_duration_s is not None and now_s - self._began_s >= options.max_duration_s:
            self._reason = "max_duration_s"
        return self._reason is None

    async def _run_tools(self, caller: ModelCaller, answer: ChatResponse, calls: Sequence[ToolCall]) -> None:
        """Run the requested tools; after `force_respond_tools` the model must answer in text."""
        self._turns += 1
        self._continuations = 0
        content, calls = distinct(answer.content, calls, partial(self._is_used, caller.model))
        calls = [_with_writable(call, "arguments") for call in calls]
        ids = {call.id for call in calls}
        content = [
            _with_writable(block, "input") if isinstance(block, ToolCallBlock) else block
            for block in content
            if not isinstance(block, ToolCallBlock) or block.id in ids
        ]
        row = with_usage(assistant_row(content, calls), answer.usage)
        row = mark_partial(row, "urgent" if answer.finish_reason == INTERRUPTED else None)
        await AnswerCalls(self._run, self.calls).run(row, calls, self._inbox)
        forcing = (call for call in calls if call.name in self._options.force_respond_tools)
        self._must_answer = any(problem_of(call.arguments) is None for call in forcing)

    def _is_used(self, model: Model, call_id: str) -> bool:
        # The rendered conversation may omit calls of this run.
        return model.requests.is_used(call_id) or self.calls.is_used(call_id)

    async def _commit_text(self, answer: ChatResponse) -> RunOutcome | None:
        """Commit a text answer. Returns None if the model call is to be continued."""
        text_blocks = [block for block in answer.content if not isinstance(block, ToolCallBlock)]
        row = with_usage(assistant_row(text_blocks), answer.usage)
        cut, incomplete = self._partial_reason(answer), self._incomplete(answer)
        if answer.finish_reason in _REFUSED:
            row = refused_row(row)
        if answer.finish_reason in _REFUSED or not all(map(_is_thinking, text_blocks)):
            await self._run.commit(mark_partial(row, cut) if cut else incomplete_row(row, incomplete))
        self._run.check_end()
        return None if cut else outcome_of(self._run.interim_texts.pending_text, incomplete)

    def _partial_reason(self, answer: ChatResponse) -> PartialReason | None:
        """Return why the answer was truncated, if the model is to continue it."""
        if answer.finish_reason == INTERRUPTED:
            return "urgent"
        if answer.finish_reason not in _TRUNCATED:
            self._continuations = 0
            return None
        self._continuations += 1
        return "length" if self._continuations <= _MAX_CONTINUATIONS else None

    def _incomplete(self, answer: ChatResponse) -> Incomplete | None:
        """Return why the run is incomplete if this answer is its last."""
        if answer.finish_reason in _REFUSED:
            return Incomplete("refusal", (answer.metadata or {}).get("refusal"))
        if answer.finish_reason in _TRUNCATED:
            return Incomplete("length")
        return Incomplete(self._reason) if self._reason else None

    def _warn_of_unknown_cost(self, outcome: RunOutcome) -> RunOutcome:
        if self._options.max_cost_usd is not None and self._run.usage.cost_usd is None:
            log.warning("run.cost_unknown", max_cost_usd=str(self._options.max_cost_usd))
        return outcome

    async def deliver(self, injections: tuple[Injection, ...]) -> None:
        """Commit drained injections as one user row.

        If the commit fails, they return to the front of the queue. A text completed by this row is shown before the
        delivery of the messages is reported.
        """
        if not injections:
            return
        row = injection_row(injections)
        with ExitStack() as undo:
            undo.callback(self._inbox.restore, injections)
            await self._run.context.add_message(row)
            undo.pop_all()
        self._continuations = 0
        self._note_delivered(injections)
        await self._run.emit_text(row)
        await self._report_delivered(injections)

    async def mark_delivered(self, injections: Sequence[Injection]) -> None:
        """Mark messages as delivered that are in the log already; the next model call reads them."""
        self._note_delivered(injections)
        await self._report_delivered(injections)

    def _note_delivered(self, injections: Sequence[Injection]) -> None:
        self._receipts.deliver([injection.id for injection in injections], self._run.iterations + 1)

    async def _report_delivered(self, injections: Sequence[Injection]) -> None:
        run = self._run
        ids = [injection.id for injection in injections]
        data = {"messages": [injection.text for injection in injections], "count": len(injections), "ids": ids}
        await run.announce(INJECTION_APPLIED, data)
        await run.progress(INJECTION_APPLIED, **data)


def _with_writable(call: Call, name: str) -> Call:
    """Return the call with arguments that can be stored; providers and hooks may have supplied others."""
    given = getattr(call, name)
    arguments = writable(given)
    return call if arguments is given else call.model_copy(update={name: arguments})


def _is_thinking(block: ContentBlock) -> bool:
    return isinstance(block, ThinkingBlock | RedactedThinkingBlock)
