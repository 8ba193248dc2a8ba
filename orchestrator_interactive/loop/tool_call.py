"""One tool call: prepare, execute, finalise, and close on every exit path."""

from __future__ import annotations

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
from orchestrator_interactive.kernel.tool_support import CALLERS, CallContext, current_call, reporting
from orchestrator_interactive.loop.outcome import usage_from_dict
from orchestrator_interactive.loop.run import RunDenied, changed
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.loop.tool_results import (
    NOT_STARTED,
    TIMED_OUT,
    UNCHECKED,
    UNKNOWN_OUTCOME,
    CompletedCall,
    ToolOutcome,
    as_result,
    examined,
    failure,
    is_large,
    moved_to_file,
    result_row,
    with_outcome,
)
from orchestrator_interactive.transcript.rows import authors_at, marked, truncate_middle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orchestrator_interactive.kernel.contracts.messages import ToolCall
    from orchestrator_interactive.kernel.contracts.protocols import Tool
    from orchestrator_interactive.loop.run import Run

log = structlog.get_logger(__name__)

# Limits of a tool's error message for the model, and of its logged traceback.
_MAX_ERROR_CHARS = 2_000
_MAX_TRACEBACK_CHARS = 20_000

Stage = Literal["waiting", "announced", "running", "known", "checked", "reported", "closed"]


class ToolExecution:
    """One tool call: prepare (hooks may modify or deny it), execute, finalise.

    It starts with `begin`, and can be cancelled at any `stage`, also by its time limit, which starts with the tool.
    `on_over` is called when it has ended or was cancelled, and sets `is_over`. `on_awaiting` is called when
    it begins or ceases to wait for a person. `close` completes it.

    Args:
        group: number of the postponements in the run before this call.
    """

    completed: CompletedCall  # set by `close`

    def __init__(
        self,
        run: Run,
        call: ToolCall,
        group: int,
        on_over: Callable[[ToolExecution], object],
        on_awaiting: Callable[[], object],
    ) -> None:
        self.call = call
        self.context = CallContext(call.id, call.name, call.arguments, on_awaiting, self._authors)
        self.group = group
        self.stage: Stage = "waiting"
        self.is_over = False
        self.was_dropped = False  # it began early, but the complete answer does not contain it
        self.lacks_events = False  # it was cancelled after it was announced, or refused
        self.hook_results: list[tuple[str, HookResult]] = []
        self._run = run
        self._on_over = partial(on_over, self)
        self._tool: Tool | None = run.tools.get(call.name)
        self._task: CancellableTask[None] | None = None
        self._input = call.arguments
        self._label: str | None = None
        self._announced_at = 0.0
        self._was_refused = False
        self._was_running = False  # when it was closed
        self._why_cancelled = NOT_STARTED
        self._result: ToolResult | None = None
        self._is_filtered = False
        self._row: dict[str, Any] | None = None
        self._line: str | None = None  # the last progress line that is not emitted yet
        self._emitting: CancellableTask[None] | None = None

    async def _authors(self) -> frozenset[str]:
        """Return the authors of the messages that led to the call; of a sub-agent's instruction, those of its call."""
        inherited = self._run.coordinator and self._run.coordinator.get_capability(CALLERS)
        of_prompt = await inherited() if inherited else frozenset()
        return authors_at(await self._run.context.get_messages(), self.call.id, of_prompt)

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
        self._result, self.is_over, self._was_refused = failure(problem), True, True

    def begin(self) -> None:
        self._task = CancellableTask(self._execute_call(), self._on_over)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.is_over:
            self._on_over()

    async def _execute_call(self) -> None:
        run, tool = self._run, self._tool
        if tool is None:
            return
        current_call.set(self.context)
        if run.hooks.listens(events.TOOL_PRE) and not await self._is_allowed():
            return
        self.stage, self._announced_at = "announced", time.monotonic()
        if hasattr(tool, "label"):
            self._label = self._label_for(tool)
        if run.on_progress is not None:
            more = {} if self._label is None else {"label": self._label}
            await run.progress("tool:start", tool=self.call.name, args=self._input, id=self.call.id, **more)
        start = run.coordinator.get_capability("approvals.start_call") if run.coordinator is not None else None
        if start is not None:
            repeatable = is_repeatable(tool)
            if problem := await start(self.call.id, self.call.name, self._input, repeatable=repeatable):
                self._result, self._was_refused = failure(problem), True
                return
        if run.is_stopped:
            return
        self.stage, self._why_cancelled, self.context.has_begun = "running", UNKNOWN_OUTCOME, True
        run.session_stop.register_tool_start(self.call.id, self.call.name)
        own_s = getattr(tool, "timeout_s", None)
        timeout_s = own_s if isinstance(own_s, int | float) and own_s > 0 else run.options.tool_timeout_s
        run.deadlines.set(self, timeout_s, partial(self._on_timeout, timeout_s))
        try:
            with reporting(self._report):
                result = self._result = await examined(await _result_of(tool, self._input))
        finally:
            run.deadlines.clear(self)
            run.session_stop.register_tool_complete(self.call.id)
        if self._row is None:
            await self._finalise(result)

    async def _is_allowed(self) -> bool:
        """Let the hooks modify or deny the call. Returns False if it must not run."""
        try:
            hook_result = await self._consult(events.TOOL_PRE)
        except RunDenied as e:
            self._result, self._was_refused = failure(f"Denied: {e}"), True
            return False
        self._input = changed(hook_result, "tool_input", self._input)
        if (name := (hook_result.data or {}).get("tool_name", self.call.name)) != self.call.name:
            log.warning("hook.modification_refused", hook=hook_result.hook_name, part="tool_name", value=name)
        return self._row is None  # else a hook ignored cancellation, and the run has ended

    def _on_timeout(self, timeout_s: float) -> None:
        log.warning("tool.timed_out", tool=self.call.name, timeout_s=timeout_s)
        self._why_cancelled = TIMED_OUT.format(timeout_s=timeout_s)
        self.cancel()

    def _report(self, text: str) -> None:
        """Emit a progress line; of the lines that arrive while another is being emitted, only the last."""
        if self._row is None:
            self._line = text
            if self._emitting is None:
                self._emitting = CancellableTask(self._emit_lines())

    async def _emit_lines(self) -> None:
        while self._line is not None and self.stage in {"running", "known"}:
            text, self._line = self._run.without_secrets(self._line), None
            await self._run.progress("tool:progress", tool=self.call.name, id=self.call.id, text=text)
        self._emitting = None

    async def _finalise(self, result: ToolResult) -> None:
        run = self._run
        self.stage, event = "known", _event_of(result)
        if run.hooks.listens(event):
            try:
                hook_result = await self._consult(event, tool_result=result, error=result.error)
            except RunDenied as e:
                self._result = result = failure(f"The result was withheld: {e}")
            else:
                modified = _changed_result(hook_result, result)
                self._result = result = result if modified is result else await examined(modified)
            if self._row is not None:
                return
        self.stage = "checked"
        if is_large(result):
            save = run.coordinator.get_capability("workspace.save") if run.coordinator else None
            limit = run.options.max_result_chars
            self._result = await moved_to_file(result, self.call.id, limit, save, run.without_secrets)
            self._is_filtered = True
            if self._row is not None:
                return
        await self._report_end()

    async def _consult(self, event: str, **more: Any) -> HookResult:
        """Emit a hook event; injections are kept until all calls of the answer have their results."""
        result = await self._run.hooks.emit(event, self._payload(**more))
        self.context.arguments = changed(result, "tool_input", self._input)
        if result.action == "inject_context":
            self.hook_results.append((event, result))
            return result
        if injections := result.injections():
            self.hook_results.append((event, HookResult(action="inject_context", context_injections=injections)))
            result = result.model_copy(update={"context_injections": []})
        return await self._run.route(result, event)

    def _payload(self, **more: Any) -> dict[str, Any]:
        # Hooks get a copy of the input, and change it through their result.
        given = deepcopy(self._input)
        return {"tool_name": self.call.name, "tool_input": given, "tool_call_id": self.call.id, **more}

    async def _report_end(self) -> None:
        if self._emitting is not None:
            await self._emitting.wait()
        if self.stage == "checked":
            self.stage = "reported"
        if self._run.on_progress is not None:
            success = self._result is not None and self._result.success
            duration = time.monotonic() - self._announced_at
            await self._run.progress(
                "tool:end", tool=self.call.name, duration=duration, id=self.call.id, success=success
            )

    def close(self) -> dict[str, Any]:
        """Close the call with its current outcome, and return its row. A later result of the tool is ignored."""
        if self._row is not None:
            return self._row
        run, stage, tool = self._run, self.stage, self._tool
        self.stage = "closed"
        self.lacks_events = self._was_refused or stage in {"announced", "running", "known", "checked"}
        self._was_running = stage == "running"
        if self._task is not None and self._task.error is not None:  # a hook failed, or the result is invalid
            log.error("tool.execution_failed", tool=self.call.name, exc_info=self._task.error)
            error = self._task.error
            self._result = self._result or failure(f"{type(error).__name__}: {error_text(error)}")
        outcome: ToolOutcome
        if self._result is not None:
            outcome = "finished" if self._result.success else "failed"
            if stage == "known" and run.hooks.listens(_event_of(self._result)):
                self._result = failure(UNCHECKED)  # a hook might have modified or withheld it
        else:
            self._result = failure(self._why_cancelled)
            if stage != "running" or (is_repeatable(tool) and not is_resumable(tool)):
                outcome = "cancelled"
            else:
                outcome = "lost" if run.is_suspended and self._why_cancelled is UNKNOWN_OUTCOME else "unknown"
        if stage == "waiting" and tool is not None:
            self._label = self._label_for(tool)
        decision = self.context.decision
        self.completed = CompletedCall(self.call, self._label, outcome, self.was_dropped, decision)
        is_clean = self._is_filtered or run.secret_filter is None
        hide = str if is_clean else partial(run.without_secrets, known_only=self._result.success)
        row = result_row(self.call, self._result, run.options.max_result_chars, hide)
        row = with_outcome(row, outcome, None if self._input is self.call.arguments else self._label)
        row = row if decision is None else marked(row, approval=decision)
        self._row = self._with_usage(row)
        return self._row

    def _with_usage(self, row: dict[str, Any]) -> dict[str, Any]:
        """Count the usage of a sub-agent as the run's own, and keep it in the row."""
        if self.context.usage is None:
            return row
        self._run.usage = self._run.usage.plus(usage := usage_from_dict(self.context.usage))
        return marked(row, usage=usage.to_dict())

    async def report_cancelled(self) -> None:
        """Emit the missing end events of a cancelled call, with a short time limit for each.

        A call that was denied or refused gets its `tool:error`, too: hooks after the one that denied it heard nothing.
        """
        if (self._was_running or self._was_refused) and self._run.hooks.listens(events.TOOL_ERROR):
            await self._within_grace(self._emit_cancelled())
        if self._was_refused:
            return
        if self._emitting is not None:
            await self._within_grace(self._emitting.wait())
        await self._within_grace(self._report_end())

    async def _emit_cancelled(self) -> None:
        payload = self._payload(tool_result=self._result, error=self._result.error if self._result else None)
        hook_result = await self._run.hooks.emit(events.TOOL_ERROR, payload)
        # Processed, like all hook results, after all calls of the answer have their results.
        self.hook_results.append((events.TOOL_ERROR, without_denial(hook_result, events.TOOL_ERROR)))

    async def _within_grace(self, emitting: Coroutine[Any, Any, None]) -> None:
        task = CancellableTask(emitting)
        self._run.deadlines.set(task, CANCEL_GRACE_S, task.cancel)
        try:
            await task.wait()
        finally:
            self._run.deadlines.clear(task)
        if not task.is_finished:
            log.warning("tool.progress_abandoned", tool=self.call.name)

    def _label_for(self, tool: Tool) -> str | None:
        label = label_of(tool, self._input)
        return None if label is None else self._run.without_secrets(label)


async def _result_of(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    try:
        result = await tool.execute(arguments)
        return result if type(result) is ToolResult else as_result(result)
    except (SystemExit, Exception) as e:  # noqa: BLE001 - a tool must not break the run
        # The text of the exception may quote the conversation, so it is logged for debugging only.
        frames = "".join(traceback.format_tb(e.__traceback__))
        lines = truncate_middle(frames, _MAX_TRACEBACK_CHARS)
        log.error("tool.failed", tool=tool.name, error=type(e).__name__, traceback=lines)  # noqa: TRY400 - cut
        log.debug("tool.error_text", tool=tool.name, error=truncate_middle(error_text(e), _MAX_ERROR_CHARS))
        message = truncate_middle(error_text(e), _MAX_ERROR_CHARS)
        return ToolResult(success=False, error={"message": message, "type": type(e).__name__})


def _changed_result(hook_result: HookResult, result: ToolResult) -> ToolResult:
    """Return the result as the hooks modified it; a text or other data in its place becomes its output."""
    value = (hook_result.data or {}).get("tool_result")
    if isinstance(value, str) or (isinstance(value, dict) and not value.keys() <= ToolResult.model_fields.keys()):
        return result.model_copy(update={"output": value})
    return changed(hook_result, "tool_result", result)


def is_side_effect_free(tool: Tool | None) -> bool:
    """Return whether the tool is marked `side_effect_free`: its calls may be discarded and repeated."""
    return bool(getattr(tool, "side_effect_free", False))


def is_repeatable(tool: Tool | None) -> bool:
    """Return whether a call that its process did not finish can be made again."""
    return is_side_effect_free(tool) or bool(getattr(tool, "repeatable", False)) or is_resumable(tool)


def is_resumable(tool: Tool | None) -> bool:
    """Return whether a call that is made again continues its work; if it is stopped, its outcome is unknown."""
    return bool(getattr(tool, "resumable", False))


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
