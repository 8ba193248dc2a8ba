"""The loop: drain, ask, run tools, append."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import structlog

from orchestrator_interactive.asking import INTERRUPTED, Asking
from orchestrator_interactive.batch import ToolBatch
from orchestrator_interactive.calls import ToolCalls
from orchestrator_interactive.injection import injection_row
from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.messages import RedactedThinkingBlock, ThinkingBlock, ToolCallBlock
from orchestrator_interactive.refusals import refused_row
from orchestrator_interactive.rows import assistant_row, distinct
from orchestrator_interactive.run import RunDenied, RunStopped
from orchestrator_interactive.usage import with_usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from orchestrator_interactive.injection import Injection, InjectionQueue
    from orchestrator_interactive.kernel.interfaces import Provider
    from orchestrator_interactive.kernel.messages import ChatResponse, ContentBlock, ToolCall
    from orchestrator_interactive.model_call import Model
    from orchestrator_interactive.receipts import Receipts
    from orchestrator_interactive.run import Run
    from orchestrator_interactive.settings import LoopOptions

log = structlog.get_logger(__name__)

INJECTION_APPLIED = "injection:applied"

# The providers' words for an answer that was cut at its length limit, and for one that they broke off.
_CUT_SHORT = ("max_tokens", "length", "model_context_window_exceeded", "pause_turn")
_REFUSED = ("refusal", "content_filter")
_MOST_CONTINUATIONS = 3
# How long a run whose time is up may take over its last answer, in seconds.
_LAST_WORD_S = 60.0

Status = Literal["success", "incomplete", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended; `reason` and `detail` say why it is incomplete."""

    text: str
    status: Status
    reason: str | None = None
    detail: str | None = None


class Loop:
    """One run: from the prompt in the log to the answer."""

    def __init__(self, run: Run, inbox: InjectionQueue, receipts: Receipts, options: LoopOptions) -> None:
        self._run = run
        self._inbox = inbox
        self._receipts = receipts
        self._options = options
        self._began_s = asyncio.get_running_loop().time()
        self._continuations = 0
        self._turns = 0
        self._is_out_of_time = False
        self._reason: str | None = None
        self.calls = ToolCalls(run, options)

    async def go(self, begin: Callable[[], Awaitable[None]], providers: Mapping[str, Provider]) -> RunOutcome:
        """Do what precedes the loop, and the loop; settle what it leaves behind on every way out.

        Raises:
            LLMError: the model could not answer.
        """
        with self._run.stop.watch(self.calls.wind_up):
            try:
                return await self._until_time_is_up(begin, providers)
            except RunDenied as e:
                return RunOutcome(f"Operation denied: {e}", "incomplete", "denied")
            except RunStopped:
                await self.calls.end()
                if self._run.session_stop.is_cancelled:
                    await self._run.announce(events.CANCEL_REQUESTED, {"immediate": self._run.stop.is_immediate})
                elif self._is_out_of_time:
                    return RunOutcome(self._run.unshown, "incomplete", "max_duration_s")
                return RunOutcome(self._run.unshown, "cancelled")
            except Exception:
                await self._run.show()
                raise
            finally:
                await self.calls.end()
                self.calls.disarm()

    async def _until_time_is_up(
        self, begin: Callable[[], Awaitable[None]], providers: Mapping[str, Provider]
    ) -> RunOutcome:
        clock, limit_s, timers = asyncio.get_running_loop(), self._options.max_duration_s, list[asyncio.TimerHandle]()
        if limit_s is not None:
            timers.append(clock.call_later(limit_s, self.calls.wind_up))
            timers.append(clock.call_later(limit_s + _LAST_WORD_S, self._run_out_of_time))
        try:
            await begin()
            return await self._loop(Asking(self._run, providers, self.calls, self._inbox, self._options))
        finally:
            for timer in timers:
                timer.cancel()

    def _run_out_of_time(self) -> None:
        self._is_out_of_time = True
        self._run.stop.request_graceful()

    async def _loop(self, asking: Asking) -> RunOutcome:
        run, must_answer = self._run, False
        while True:
            run.check_stop()
            await self.calls.bring_in()
            await self.take_in(self._inbox.drain())  # injection points 1 and, after tools, 3
            tools_allowed = self._has_means() and not must_answer
            await run.progress("thinking", iteration=run.iterations + 1)
            answer = await asking.ask(tools_allowed=tools_allowed)
            if answer is None:  # it is to be asked again, with what has been written meanwhile
                continue
            run.iterations += 1
            may_call = tools_allowed and answer.finish_reason not in _REFUSED
            calls = asking.model.provider.parse_tool_calls(answer) if may_call else []
            if calls:
                must_answer = await self._run_tools(asking, answer, calls)
                continue
            must_answer = False
            await self.calls.drop_early()
            await self._say(answer)
            if answer.finish_reason == INTERRUPTED or self._continues(answer):
                continue
            if self.calls.are_pending:
                await run.show()
                await self.calls.wait_for_news(self._inbox)
                continue
            late = self._inbox.drain_or_close()  # injection point 2
            if not late:
                return self._outcome(answer)
            await self.take_in(late)

    def _has_means(self) -> bool:
        """Whether the run may go on as it likes; else it has one answer left, and says why."""
        options, run = self._options, self._run
        now_s = asyncio.get_running_loop().time()
        if self._turns >= options.max_iterations:
            self._reason = "max_iterations"
        elif options.max_tokens is not None and run.spent.tokens >= options.max_tokens:
            self._reason = "max_tokens"
        elif options.max_cost_usd is not None and (run.spent.cost_usd or 0) >= options.max_cost_usd:
            self._reason = "max_cost_usd"
        elif options.max_duration_s is not None and now_s - self._began_s >= options.max_duration_s:
            self._reason = "max_duration_s"
        return self._reason is None

    async def _run_tools(self, asking: Asking, answer: ChatResponse, calls: Sequence[ToolCall]) -> bool:
        """Run the tools that the model asked for; whether it must answer in words now."""
        self._turns += 1
        self._continuations = 0
        await self._run.show()
        if answer.finish_reason == INTERRUPTED:
            self._run.unshown += answer.text
        content, calls = distinct(answer.content, calls, partial(self._is_used, asking.model))
        ids = {call.id for call in calls}
        content = [block for block in content if not isinstance(block, ToolCallBlock) or block.id in ids]
        row = with_usage(assistant_row(content, calls), answer.usage)
        await ToolBatch(self._run, self.calls).go(row, calls, self._inbox)
        return any(call.name in self._options.force_respond_tools for call in calls)

    def _is_used(self, model: Model, call_id: str) -> bool:
        # A view of the conversation may not show what this run has done.
        return model.requests.is_used(call_id) or self.calls.is_used(call_id)

    async def _say(self, answer: ChatResponse) -> None:
        said = [block for block in answer.content if not isinstance(block, ToolCallBlock)]
        row = with_usage(assistant_row(said), answer.usage)
        if answer.finish_reason in _REFUSED:
            await self._run.context.add_message(refused_row(row))
        elif not all(map(_is_thinking, said)):
            await self._run.context.add_message(row)
        self._run.unshown += answer.text
        self._run.check_stop()

    def _continues(self, answer: ChatResponse) -> bool:
        """Whether the answer was cut at its length limit, and the model may go on with it."""
        if answer.finish_reason not in _CUT_SHORT:
            self._continuations = 0
            return False
        self._continuations += 1
        return self._continuations <= _MOST_CONTINUATIONS

    def _outcome(self, answer: ChatResponse) -> RunOutcome:
        text = self._run.unshown
        if self._options.max_cost_usd is not None and self._run.spent.cost_usd is None:
            log.warning("run.cost_unknown", max_cost_usd=str(self._options.max_cost_usd))
        if answer.finish_reason in _REFUSED:
            return RunOutcome(text, "incomplete", "refusal", (answer.metadata or {}).get("refusal"))
        if answer.finish_reason in _CUT_SHORT:
            return RunOutcome(text, "incomplete", "length")
        return RunOutcome(text, "incomplete" if self._reason else "success", self._reason)

    async def take_in(self, injections: tuple[Injection, ...]) -> None:
        """Commit what was drained as one user row.

        What is not committed goes back to the front of the queue. An answer that these messages came after is shown
        first.
        """
        if not injections:
            return
        run = self._run
        try:
            await run.show()
            await run.context.add_message(injection_row(injections))
        except BaseException:
            self._inbox.restore(injections)
            raise
        self._continuations = 0
        await self.tell_delivered(injections)

    async def tell_delivered(self, injections: Sequence[Injection]) -> None:
        """The next model call has these messages before it."""
        run = self._run
        ids = [injection.id for injection in injections]
        self._receipts.deliver(ids, run.iterations + 1)
        data = {"messages": [injection.text for injection in injections], "count": len(injections), "ids": ids}
        await run.announce(INJECTION_APPLIED, data)
        await run.progress(INJECTION_APPLIED, **data)


def _is_thinking(block: ContentBlock) -> bool:
    return isinstance(block, ThinkingBlock | RedactedThinkingBlock)
