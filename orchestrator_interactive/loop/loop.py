"""The loop: drain, ask, run tools, append."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.loop.injection_queue import injection_rows, notice_row, talk_row
from orchestrator_interactive.loop.model_call import INTERRUPTED, REFUSED, ModelCaller
from orchestrator_interactive.loop.outcome import SUSPENDED, RunOutcome, usage_in, with_usage
from orchestrator_interactive.loop.run import RunDenied, RunStopped, RunSuspended, changed
from orchestrator_interactive.loop.tool_calls import ToolExecutor
from orchestrator_interactive.loop.tool_results import lost_results_row
from orchestrator_interactive.transcript.answer_parts import mark_partial
from orchestrator_interactive.transcript.framing import without_frames
from orchestrator_interactive.transcript.rows import (
    assistant_row,
    delivered_ids_in,
    distinct,
    marked,
    refused_row,
    user_row,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatResponse, ContentBlock
    from orchestrator_interactive.kernel.contracts.protocols import Provider
    from orchestrator_interactive.loop.injection_queue import Injection, Talk
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.transcript.answer_parts import PartialReason

log = structlog.get_logger(__name__)

INJECTION_APPLIED = "injection:applied"

# Finish reasons of answers that were truncated at a length limit.
_TRUNCATED = ("max_tokens", "length", "model_context_window_exceeded", "pause_turn")
_MAX_CONTINUATIONS = 3
# Time for the final answer after `max_duration_s`, in seconds.
_FINAL_ANSWER_S = 60.0


@dataclass(slots=True)
class LoopState:
    """What the loop keeps from one model call to the next.

    Args:
        turns: answers with tool calls so far.
        continuations: consecutive answers, up to now, that were truncated at the length limit.
        must_answer: the next answer must be text.
        limit: the limit that the run has reached.
        answered: the outcome of a resumed run that has its answer already.
        is_recorded: the log also has the end of that run.
    """

    turns: int = 0
    continuations: int = 0
    must_answer: bool = False
    limit: str | None = None
    answered: RunOutcome | None = None
    is_recorded: bool = False


class Loop:
    """One run: from the prompt, or from the state in the log, to the answer."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.state = LoopState()
        self.calls = ToolExecutor(run)
        self._caller: ModelCaller | None = None
        self._began_s = asyncio.get_running_loop().time()
        self._began_at = time.time()
        self._is_out_of_time = False

    def on_injection(self, injection: Injection) -> None:
        """React to a pending message: an urgent one interrupts the model call in flight."""
        self.calls.on_injection(injection)
        if injection.urgent and self._caller is not None:
            self._caller.interrupt()

    async def execute(self, begin: Callable[[Loop], Awaitable[None]], providers: Mapping[str, Provider]) -> RunOutcome:
        """Run `begin` and the loop, and settle all tool calls on every exit path.

        Raises:
            LLMError: the model could not answer.
        """
        run, calls = self.run, self.calls
        with run.stop.watch(calls.begin_stop):
            try:
                if (limit_s := run.options.max_duration_s) is not None:
                    run.deadlines.set("last answer", limit_s, calls.begin_stop)
                    run.deadlines.set("end", limit_s + _FINAL_ANSWER_S, self._run_out_of_time)
                if run.coordinator is not None:
                    run.coordinator.reset_turn()
                await begin(self)
                caller = self._caller = ModelCaller(run, providers, calls)
                with run.ending.watch(caller.cancel):
                    return await self._loop(caller)
            except RunDenied as e:
                await run.show(run.interim_texts.flush())
                return RunOutcome(f"Operation denied: {run.without_secrets(str(e))}", "incomplete", "denied")
            except RunSuspended:
                return SUSPENDED
            except RunStopped:
                await calls.end()
                if run.session_stop.is_cancelled:
                    await run.announce(events.CANCEL_REQUESTED, {"immediate": run.stop.is_immediate})
                elif self._is_out_of_time:
                    return RunOutcome(run.interim_texts.pending_text, "incomplete", "max_duration_s")
                return RunOutcome(run.interim_texts.pending_text, "cancelled")
            except Fenced:
                raise  # another process owns the run now, and posts its texts
            except Exception:
                await run.show(run.interim_texts.flush())
                raise
            finally:
                await calls.end()
                run.deadlines.close()

    def _run_out_of_time(self) -> None:
        """Stop the run: the time for its final answer is over."""
        self._is_out_of_time = True
        self.run.stop.request_graceful()

    async def start(  # noqa: PLR0913, PLR0917 - the parts of a run
        self,
        prompt: str,
        message_id: str | None,
        author: str | None,
        order: float | None,
        notices: Mapping[str, str],
        talk: Talk,
        images: Sequence[Mapping[str, Any]],
        left_pending: frozenset[str],
    ) -> None:
        """Announce a new run; commit the notices, older messages and those left pending, then talk and the prompt."""
        run, session_state = self.run, self.run.session_state
        await run.announce(events.EXECUTION_START, {"prompt": prompt})
        await run.progress("executing", prompt=prompt, run=run.id)
        if not session_state.knows_log:
            rows = await run.context.get_messages()
            if run.inbox.pending:
                await self.remove_delivered(rows)
            if lost := lost_results_row(rows):
                await run.context.add_message(lost)
            if session_state.usage is None:
                session_state.usage = usage_in(rows)
            session_state.note_calls(rows)
            session_state.knows_log = True
        hook_result = await run.consult(events.PROMPT_SUBMIT, {"prompt": prompt})
        if hook_result is not CONTINUE:
            prompt = changed(hook_result, "prompt", prompt)
        kept = len(session_state.notices)
        if kept or notices:
            await run.context.add_message(notice_row([*session_state.notices[:kept], *notices.values()], notices))
            del session_state.notices[:kept]
        if waiting := run.inbox.drain():
            before = tuple(each for each in waiting if each.id in left_pending or each.is_older(order))
            run.inbox.restore([each for each in waiting if each not in before])
            if before:
                await self.deliver(before, with_prompt=left_pending.isdisjoint(each.id for each in before))
        row = user_row(without_frames(sendable(prompt)), message_id, author, images)
        await run.commit(*([talk_row(talk)] if talk else ()), row)
        if run.inbox.pending and not run.is_ending:
            await self._deliver_written_before()

    async def _deliver_written_before(self) -> None:
        """Deliver the pending messages that were written before the run began, like its prompt."""
        inbox = self.run.inbox
        waiting = inbox.drain()
        before = tuple(each for each in waiting if each.order is not None and each.order < self._began_at)
        inbox.restore([each for each in waiting if each not in before])
        if before:
            await self.deliver(before, with_prompt=True)

    async def remove_delivered(self, rows: Sequence[dict[str, Any]]) -> None:
        """Remove pending messages whose row was committed just before the earlier run was interrupted."""
        inbox = self.run.inbox
        committed = {message_id for row in rows for message_id in delivered_ids_in(row)}
        if delivered := [each for each in inbox.pending.values() if each.id in committed]:
            for each in delivered:
                inbox.withdraw(each.id)
            inbox.note_delivered([each.id for each in delivered], self.run.iterations + 1)
            await self._report_delivered(delivered)

    async def _loop(self, caller: ModelCaller) -> RunOutcome:
        run, state, calls = self.run, self.state, self.calls
        if calls.postponed:  # a resumed run has asked the model already
            await calls.wait_for_change()
        elif state.answered is not None and await self._is_done():
            return state.answered
        while True:
            await self._commit_news()
            tools_allowed = self._is_within_limits() and not state.must_answer
            asked = await caller.ask(tools_allowed=tools_allowed)
            if asked is None:  # repeat the model call, with the injections that have arrived
                continue
            answer, requested = asked
            run.iterations += 1
            if requested:
                await self._run_tools(caller.model.requests.is_used, answer, requested)
            elif (outcome := await self._commit_text(answer)) is None:
                continue
            elif calls.postponed:
                await calls.wait_for_change()
            elif await self._is_done():
                if run.options.max_cost_usd is not None and run.usage.cost_usd is None:
                    log.warning("run.cost_unknown", max_cost_usd=str(run.options.max_cost_usd))
                return outcome

    async def _commit_news(self) -> None:
        """Commit what the next model call is to read: results of postponed calls, and pending injections."""
        run = self.run
        run.check_end()
        if self.calls.postponed:
            await self.calls.commit_finished(run.commit)
        if injections := run.inbox.drain():  # injection points 1 and, after tools, 3
            await self.deliver(injections)
        if run.on_progress is not None:
            await run.progress("thinking", iteration=run.iterations + 1)

    async def _is_done(self) -> bool:
        """Return whether the queue was empty and is now closed; else commit the pending injections."""
        self.run.check_end()
        if self.state.is_recorded:
            return True  # the next run reads the pending messages
        if late := self.run.inbox.drain_or_close():  # injection point 2
            await self.deliver(late)
        return not late

    def _is_within_limits(self) -> bool:
        """Return whether the run is within its limits; if not, note which it reached: the next answer is the last."""
        options, usage = self.run.options, self.run.usage
        if self.state.turns >= options.max_iterations:
            self.state.limit = "max_iterations"
        elif options.max_tokens is not None and usage.input_tokens + usage.output_tokens >= options.max_tokens:
            self.state.limit = "max_tokens"
        elif options.max_cost_usd is not None and (usage.cost_usd or 0) >= options.max_cost_usd:
            self.state.limit = "max_cost_usd"
        elif options.max_duration_s is not None and self._elapsed_s() >= options.max_duration_s:
            self.state.limit = "max_duration_s"
        return self.state.limit is None

    def _elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began_s

    async def _run_tools(
        self, is_in_request: Callable[[str], bool], answer: ChatResponse, calls: Sequence[ToolCall]
    ) -> None:
        """Run the requested tools; after `force_respond_tools` the model must answer in text."""
        state, forced, has_used = self.state, self.run.options.force_respond_tools, self.run.session_state.has_used
        state.turns += 1
        state.continuations = 0
        content, calls = distinct(answer.content, calls, lambda call_id: is_in_request(call_id) or has_used(call_id))
        content, calls = _storable(content, calls)
        row = with_usage(assistant_row(content, calls), answer.usage)
        if answer.finish_reason == INTERRUPTED:
            row = mark_partial(row, "urgent")
        await self.calls.run_answer(row, calls)
        for call in calls if forced else ():
            if call.name in forced and problem_of(call.arguments) is None:
                state.must_answer = True

    async def _commit_text(self, answer: ChatResponse) -> RunOutcome | None:
        """Commit a text answer. Returns None if the model call is to be continued."""
        run, state, reason = self.run, self.state, answer.finish_reason
        state.must_answer = False
        if self.calls.early:
            await self.calls.drop_early()
        text_blocks = [block for block in answer.content if not isinstance(block, ToolCallBlock)]
        row = with_usage(assistant_row(text_blocks), answer.usage)
        has_content = not all(isinstance(block, ThinkingBlock | RedactedThinkingBlock) for block in text_blocks)
        # Why the model is to continue this answer, and why the run is incomplete if it is the last.
        partial: PartialReason | None = "urgent" if reason == INTERRUPTED else None
        incomplete = {"reason": state.limit, "detail": None} if state.limit else None
        if reason in _TRUNCATED:
            state.continuations += 1
            partial = "length" if state.continuations <= _MAX_CONTINUATIONS else None
            incomplete = {"reason": "length", "detail": None}
        elif partial is None:
            state.continuations = 0
        if reason in REFUSED:
            row, has_content = refused_row(row), True
            incomplete = {"reason": "refusal", "detail": (answer.metadata or {}).get("refusal")}
        if has_content:
            is_marked = partial is None and incomplete
            await run.commit(marked(row, incomplete=incomplete) if is_marked else mark_partial(row, partial))
        run.check_end()
        if partial:
            return None
        text = run.interim_texts.pending_text
        return RunOutcome(text, "incomplete", **incomplete) if incomplete else RunOutcome(text, "success")

    async def deliver(self, injections: tuple[Injection, ...], *, with_prompt: bool = False) -> None:
        """Commit drained injections as one user row, or with talk, several rows in one step.

        If the commit fails, they return to the front of the queue. A text completed by this row is shown before the
        delivery of the messages is reported.
        """
        run, rows = self.run, injection_rows(injections, with_prompt=with_prompt)
        with ExitStack() as undo:
            undo.callback(run.inbox.restore, injections)
            await run.write(*rows)
            undo.pop_all()
        self.state.continuations = 0
        run.inbox.note_delivered([each.id for each in injections], run.iterations + 1)
        for row in rows:
            await run.emit_text(row)
        await self._report_delivered(injections)

    async def _report_delivered(self, injections: Sequence[Injection]) -> None:
        """Report that the next model call reads these messages."""
        ids = [injection.id for injection in injections]
        data = {"messages": [injection.text for injection in injections], "count": len(injections), "ids": ids}
        await self.run.announce(INJECTION_APPLIED, data)
        await self.run.progress(INJECTION_APPLIED, **data)


def _storable(
    content: Sequence[ContentBlock], calls: Sequence[ToolCall]
) -> tuple[Sequence[ContentBlock], Sequence[ToolCall]]:
    """Return the blocks and calls with arguments that can be stored, without blocks of calls that are not made."""
    made: dict[str, ToolCall] = {}
    for call in calls:
        arguments = writable(call.arguments)  # providers and hooks may have supplied others
        made[call.id] = call if arguments is call.arguments else call.model_copy(update={"arguments": arguments})
    blocks: list[ContentBlock] = []
    for block in content:
        if not isinstance(block, ToolCallBlock):
            blocks.append(block)
        elif block.id in made:
            same = block.input == made[block.id].arguments
            given = block.input if same else writable(block.input)
            blocks.append(block if given is block.input else block.model_copy(update={"input": given}))
    return blocks, list(made.values())
