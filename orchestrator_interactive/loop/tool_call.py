"""One tool call: prepare, execute, finalise, and close on every exit path."""

from __future__ import annotations

import asyncio
import time
import traceback
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.models import HookResult, ToolResult
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, error_text
from orchestrator_interactive.kernel.hooks import without_denial
from orchestrator_interactive.kernel.timeout import CANCEL_GRACE_S
from orchestrator_interactive.kernel.tool_support import reporting
from orchestrator_interactive.loop.large_results import examined, is_large, moved_to_file
from orchestrator_interactive.loop.run import RunDenied, changed
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.loop.tool_results import (
    NOT_STARTED,
    TIMED_OUT,
    UNCHECKED,
    UNKNOWN_OUTCOME,
    CallOutcome,
    CompletedCall,
    ToolOutcome,
    as_result,
    changed_result,
    failure,
    result_row,
)
from orchestrator_interactive.transcript.rows import truncate_middle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from orchestrator_interactive.kernel.contracts.messages import ToolCall
    from orchestrator_interactive.kernel.contracts.protocols import Tool
    from orchestrator_interactive.loop.options import LoopOptions
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.tasks import Deadlines

log = structlog.get_logger(__name__)

# Limits of a tool's error message for the model, and of its logged traceback.
_MAX_ERROR_CHARS = 2_000
_MAX_TRACEBACK_CHARS = 20_000

Stage = Literal["waiting", "announced", "running", "known", "checked", "reported", "closed"]


class ToolExecution:
    """One tool call: prepare (hooks may modify or deny it), execute, finalise.

    It starts with `begin`, and can be cancelled at any `stage`, also by its time limit, which starts with the tool.
    `result` is None until a result is known. `on_over` is called when it has ended or was cancelled.
    """

    def __init__(
        self,
        run: Run,
        call: ToolCall,
        options: LoopOptions,
        deadlines: Deadlines,
        on_over: Callable[[ToolExecution], object],
    ) -> None:
        self._run = run
        self.call = call
        self.stage: Stage = "waiting"
        self.result: ToolResult | None = None
        self.hook_results: list[tuple[str, HookResult]] = []
        self._tool: Tool | None = run.tools.get(call.name)
        self._timeout_s = options.tool_timeout_s
        self._timed_out = False
        self._most_chars = options.max_result_chars
        self._input = call.arguments
        self._label: str | None = None
        self._announced_at = 0.0
        self._stage_at_close: Stage = "waiting"
        self._row: dict[str, Any] | None = None
        self._is_dropped = False
        self._outcome: ToolOutcome = "cancelled"
        self._reports: _Reports | None = None
        self._deadlines = deadlines
        self._is_filtered = False
        self._on_over = on_over
        self._is_over = False
        self._task: CancellableTask[None] | None = None
        self._has_begun: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended or was cancelled."""
        return self._is_over

    def problem(self) -> str | None:
        """Return why the call cannot begin; None if it can."""
        if problem := problem_of(self.call.arguments):
            log.warning("tool.arguments_invalid", tool=self.call.name, id=self.call.id, problem=problem)
        elif self._tool is None:
            known = ", ".join(sorted(self._run.tools)) or "none"
            return f"There is no tool '{self.call.name}'. Tools: {known}."
        return problem

    def refuse(self, problem: str) -> None:
        """Fail without having begun."""
        self.result, self._is_over = failure(problem), True

    def begin(self) -> None:
        self._task = CancellableTask(self._execute_call(), self._set_over)
        self._signal_begin()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self._is_over:
            self._set_over()
            self._signal_begin()

    def drop(self) -> None:
        """Cancel an early call that the complete answer does not contain."""
        self._is_dropped = True
        self.cancel()

    async def end(self) -> None:
        """Wait until it is over. Cancelling the waiter cancels the call."""
        if self._task is None and not self._is_over:
            self._has_begun = asyncio.get_running_loop().create_future()
            try:
                await self._has_begun
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self._task is not None:
            await self._task.wait()

    def _signal_begin(self) -> None:
        if self._has_begun is not None and not self._has_begun.done():
            self._has_begun.set_result(None)

    def _set_over(self) -> None:
        self._is_over = True
        self._on_over(self)

    async def _execute_call(self) -> None:
        run, tool = self._run, self._tool
        if tool is None:
            return
        if run.hooks.listens(events.TOOL_PRE):
            try:
                self._input = changed(await self._consult(events.TOOL_PRE), "tool_input", self._input)
            except RunDenied as e:
                self.result = failure(f"Denied: {e}")
                return
            if self._is_closed():  # a hook ignored cancellation, and the run has ended
                return
        self.stage, self._announced_at = "announced", time.monotonic()
        self._label = self._label_for(tool)
        if run.on_progress is not None:
            more = {} if self._label is None else {"label": self._label}
            await run.progress("tool:start", tool=self.call.name, args=self._input, id=self.call.id, **more)
        if run.is_stopped:
            return
        self.stage = "running"
        run.session_stop.register_tool_start(self.call.id, self.call.name)
        own_s = getattr(tool, "timeout_s", None)
        self._timeout_s = own_s if isinstance(own_s, int | float) and own_s > 0 else self._timeout_s
        self._deadlines.set(self, self._timeout_s, self._on_timeout)
        try:
            with reporting(self._report):
                result = self.result = await examined(await _result_of(tool, self._input))
        finally:
            self._deadlines.clear(self)
            run.session_stop.register_tool_complete(self.call.id)
        if not self._is_closed():
            await self._finalise(result)

    def _on_timeout(self) -> None:
        log.warning("tool.timed_out", tool=self.call.name, timeout_s=self._timeout_s)
        self._timed_out = True
        self.cancel()

    def _report(self, text: str) -> None:
        if self._is_closed():
            return
        if self._reports is None:
            self._reports = _Reports(self._emit_progress)
        self._reports.report(text)

    def close(self) -> dict[str, Any]:
        """Close the call with its current outcome, and return its row. A later result of the tool is ignored."""
        if self._row is None:
            self._record_crash()
            self._stage_at_close, self.stage = self.stage, "closed"
            self._outcome = self._outcome_at_close()
            if self.result is None:
                self.result = failure(self._cancel_reason())
            elif self._stage_at_close == "known" and self._run.hooks.listens(_event_of(self.result)):
                self.result = failure(UNCHECKED)  # a hook might have modified or withheld it
            label = None if self._input is self.call.arguments else self._label
            self._row = CallOutcome(self._outcome, label).mark(self._row_of(self.result))
        return self._row

    def _row_of(self, result: ToolResult) -> dict[str, Any]:
        hide = str if self._is_filtered else partial(self._run.without_secrets, known_only=result.success)
        return result_row(self.call, result, self._most_chars, hide)

    def _cancel_reason(self) -> str:
        if self._stage_at_close != "running":
            return NOT_STARTED
        return TIMED_OUT.format(timeout_s=self._timeout_s) if self._timed_out else UNKNOWN_OUTCOME

    def _outcome_at_close(self) -> ToolOutcome:
        if self.result is not None:
            return "finished" if self.result.success else "failed"
        if self._stage_at_close != "running" or is_side_effect_free(self._tool):
            return "cancelled"
        return "lost" if self._run.is_suspended and not self._timed_out else "unknown"

    def completed_call(self) -> CompletedCall:
        """Return the outcome of the closed call."""
        if self._stage_at_close == "waiting" and self._tool is not None:
            self._label = self._label_for(self._tool)
        return CompletedCall(self.call, self._label, self._outcome, was_dropped=self._is_dropped)

    def _record_crash(self) -> None:
        """Turn an error outside the tool (a hook, an invalid result) into a failed call."""
        error = self._task.error if self._task is not None else None
        if error is not None:
            log.error("tool.execution_failed", tool=self.call.name, exc_info=error)
            self.result = self.result or failure(f"{type(error).__name__}: {error_text(error)}")

    @property
    def owes_events(self) -> bool:
        """Whether the closed call was cancelled after it was announced."""
        return self._stage_at_close in {"announced", "running", "known", "checked"}

    async def report_cancelled(self) -> None:
        """Emit the missing end events of a cancelled call, with a short time limit for each."""
        if self._stage_at_close == "running":
            await self._within_grace(self._emit_cancelled())
        if self._reports is not None:
            await self._within_grace(self._reports.end())
        await self._within_grace(self._report_end())

    async def _within_grace(self, emitting: Coroutine[Any, Any, None]) -> None:
        task = CancellableTask(emitting)
        self._deadlines.set(task, CANCEL_GRACE_S, task.cancel)
        try:
            await task.wait()
        finally:
            self._deadlines.clear(task)
        if not task.is_finished:
            log.warning("tool.progress_abandoned", tool=self.call.name)

    async def _emit_cancelled(self) -> None:
        error = self.result.error if self.result else None
        hook_result = await self._run.hooks.emit(events.TOOL_ERROR, self._payload(tool_result=self.result, error=error))
        # Processed, like all hook results, after all calls of the answer have their results.
        self.hook_results.append((events.TOOL_ERROR, without_denial(hook_result, events.TOOL_ERROR)))

    def _is_closed(self) -> bool:
        return self.stage == "closed"

    def _label_for(self, tool: Tool) -> str | None:
        label = label_of(tool, self._input)
        return None if label is None else self._run.without_secrets(label)

    async def _emit_progress(self, text: str) -> None:
        text = self._run.without_secrets(text)
        await self._run.progress("tool:progress", tool=self.call.name, id=self.call.id, text=text)

    async def _finalise(self, result: ToolResult) -> None:
        self.stage = "known"
        event = _event_of(result)
        if self._run.hooks.listens(event):
            try:
                hook_result = await self._consult(event, tool_result=result, error=result.error)
            except RunDenied as e:
                self.result = result = failure(f"The result was withheld: {e}")
            else:
                modified = changed_result(hook_result, result)
                self.result = result = result if modified is result else await examined(modified)
            if self._is_closed():
                return
        self.stage = "checked"
        if is_large(result):
            coordinator = self._run.coordinator
            save = coordinator.get_capability("workspace.save") if coordinator else None
            self.result = await moved_to_file(result, self.call.id, self._most_chars, save, self._run.without_secrets)
            self._is_filtered = True
            if self._is_closed():
                return
        await self._report_end()

    async def _consult(self, event: str, **more: Any) -> HookResult:
        """Emit a hook event; injections are kept until all calls of the answer have their results."""
        result = await self._run.hooks.emit(event, self._payload(**more))
        if result.action == "inject_context":
            self.hook_results.append((event, result))
            return result
        if injections := result.injections():
            hook_result = HookResult(action="inject_context", context_injections=injections)
            self.hook_results.append((event, hook_result))
            result = result.model_copy(update={"context_injections": []})
        return await self._run.route(result, event)

    async def _report_end(self) -> None:
        if self._reports is not None:
            await self._reports.end()
        if self.stage == "checked":
            self.stage = "reported"
        if self._run.on_progress is None:
            return
        await self._run.progress(
            "tool:end",
            tool=self.call.name,
            duration=time.monotonic() - self._announced_at,
            id=self.call.id,
            success=self.result is not None and self.result.success,
        )

    def _payload(self, **more: Any) -> dict[str, Any]:
        # Hooks get a copy of the input, and change it through their result.
        given = deepcopy(self._input)
        return {"tool_name": self.call.name, "tool_input": given, "tool_call_id": self.call.id, **more}


class _Reports:
    """Progress lines of a tool: emits one at a time; of the lines that arrive in between, only the last."""

    def __init__(self, emit: Callable[[str], Awaitable[None]]) -> None:
        self._emit = emit
        self._latest: str | None = None
        self._emitting: CancellableTask[None] | None = None
        self._ended = False

    def report(self, text: str) -> None:
        self._latest = text
        if self._emitting is None and not self._ended:
            self._emitting = CancellableTask(self._emit_all())

    async def end(self) -> None:
        """Accept no more lines, and wait for the line being emitted."""
        self._ended = True
        if self._emitting is not None:
            await self._emitting.wait()

    async def _emit_all(self) -> None:
        while self._latest is not None and not self._ended:
            text, self._latest = self._latest, None
            await self._emit(text)
        self._emitting = None


async def _result_of(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    try:
        return as_result(await tool.execute(arguments))
    except (SystemExit, Exception) as e:  # noqa: BLE001 - a tool must not break the run
        lines = "".join(traceback.TracebackException.from_exception(e).format())
        log.error("tool.failed", tool=tool.name, exception=truncate_middle(lines, _MAX_TRACEBACK_CHARS))  # noqa: TRY400 - cut
        message = truncate_middle(error_text(e), _MAX_ERROR_CHARS)
        return ToolResult(success=False, error={"message": message, "type": type(e).__name__})


def is_side_effect_free(tool: Tool | None) -> bool:
    """Return whether the tool is marked `side_effect_free`: its calls may be discarded and repeated."""
    return bool(getattr(tool, "side_effect_free", False))


def label_of(tool: Tool, arguments: dict[str, Any]) -> str | None:
    """Return the tool's label of a call for people, if it has one."""
    label = getattr(tool, "label", None)
    if not callable(label) or problem_of(arguments):
        return None
    with ErrorBoundary(log, "tool.label_failed", tool=tool.name):
        return str(label(arguments))
    return None


def _event_of(result: ToolResult) -> str:
    return events.TOOL_POST if result.success else events.TOOL_ERROR
