"""A batch of tool calls: side by side, results in call order, and a result for every call whatever happens."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal

import structlog

from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.models import HookResult, ToolResult
from orchestrator_interactive.rows import tool_row
from orchestrator_interactive.run import RunDenied
from orchestrator_interactive.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.kernel.interfaces import Tool
    from orchestrator_interactive.kernel.messages import ToolCall
    from orchestrator_interactive.run import Run

log = structlog.get_logger(__name__)

NOT_STARTED = "Not started: the run was stopped before this call."
UNKNOWN_OUTCOME = "Cancelled while it was running: its outcome is unknown."


class ToolUse:
    """One call on its way: prepared (the hooks may change or refuse it), executed, finalised."""

    def __init__(self, run: Run, call: ToolCall) -> None:
        self._run = run
        self.call = call
        self.stage: Literal["waiting", "running", "finished"] = "waiting"
        self.wishes: list[tuple[str, HookResult]] = []
        self._input = call.arguments
        self._started_at = 0.0

    async def go(self) -> ToolResult:
        try:
            tool = self._run.tools.get(self.call.name)
            if tool is None:
                known = ", ".join(sorted(self._run.tools)) or "none"
                return _failure(f"There is no tool '{self.call.name}'. Tools: {known}.")
            await self._prepare()
        except RunDenied as e:
            return _failure(f"Denied: {e}")
        return await self._finalise(await self._execute(tool))

    async def report_cut(self) -> None:
        """Close the events of a call that a stop has cut."""
        if self.stage == "running":
            self.stage = "finished"
            await self._run.hooks.emit(events.TOOL_ERROR, self._payload(error={"message": UNKNOWN_OUTCOME}))
            await self._report_end(success=False)

    async def _prepare(self) -> None:
        result = await self._consult(events.TOOL_PRE, self._payload())
        if result.data is not None:
            self._input = result.data.get("tool_input", self._input)

    async def _execute(self, tool: Tool) -> ToolResult:
        self.stage, self._started_at = "running", time.monotonic()
        start: dict[str, Any] = {"tool": self.call.name, "args": self._input, "id": self.call.id}
        label = getattr(tool, "label", None)
        if callable(label):
            start["label"] = label(self._input)
        await self._run.progress("tool:start", **start)
        try:
            result = await tool.execute(self._input)
        except Exception as e:  # a tool may not take the run down
            log.exception("tool.failed", tool=self.call.name)
            return ToolResult(success=False, error={"message": str(e) or type(e).__name__, "type": type(e).__name__})
        return result if hasattr(result, "get_serialized_output") else ToolResult(output=result)

    async def _finalise(self, result: ToolResult) -> ToolResult:
        event = events.TOOL_POST if result.success else events.TOOL_ERROR
        try:
            wish = await self._consult(event, self._payload(tool_result=result, error=result.error))
        except RunDenied as e:
            result = _failure(f"The result was withheld: {e}")
        else:
            changed = (wish.data or {}).get("tool_result", result)
            result = changed if hasattr(changed, "get_serialized_output") else ToolResult(output=changed)
        self.stage = "finished"
        await self._report_end(success=result.success)
        return result

    async def _consult(self, event: str, data: dict[str, Any]) -> HookResult:
        """Ask the hooks; a wish to inject waits until every call of the batch has its result."""
        result = await self._run.hooks.emit(event, data)
        if result.action == "inject_context":
            self.wishes.append((event, result))
            return result
        if result.action == "continue" and result.user_message is None:
            return result
        result = await self._run.route(result, event)
        if result.action == "deny":
            raise RunDenied(result.reason or "a hook denied it")
        return result

    async def _report_end(self, *, success: bool) -> None:
        duration = time.monotonic() - self._started_at
        await self._run.progress("tool:end", tool=self.call.name, duration=duration, id=self.call.id, success=success)

    def _payload(self, **more: Any) -> dict[str, Any]:
        return {"tool_name": self.call.name, "tool_input": self._input, "tool_call_id": self.call.id, **more}


class ToolBatch:
    """The calls of one answer, side by side."""

    def __init__(self, run: Run, calls: Sequence[ToolCall], stop_grace_s: float) -> None:
        self._run = run
        self._stop_grace_s = stop_grace_s
        self._uses = [ToolUse(run, call) for call in calls]
        self._works = [Work(use.go()) for use in self._uses]
        self._grace: asyncio.TimerHandle | None = None

    async def go(self) -> None:
        """Add every result to the context, in call order, as early as that order allows.

        A graceful stop lets running calls go on for the grace period; an immediate one cuts them; so does cancelling
        the caller. Whichever way it ends, each call has its result.
        """
        collecting = asyncio.create_task(self._collect())
        try:
            with self._run.stop.watch(self._on_stop):
                await asyncio.shield(collecting)
        except asyncio.CancelledError:
            self._cut_all()
            await collecting
            raise
        finally:
            if self._grace is not None:
                self._grace.cancel()

    def _on_stop(self) -> None:
        for use, work in zip(self._uses, self._works, strict=True):
            if self._run.stop.is_immediate or use.stage == "waiting":
                work.cut()
        if self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(self._stop_grace_s, self._cut_all)

    def _cut_all(self) -> None:
        for work in self._works:
            work.cut()

    async def _collect(self) -> None:
        for use, work in zip(self._uses, self._works, strict=True):
            await work.end()
            await self._commit(use, work)
        for use in self._uses:
            for event, wish in use.wishes:
                await self._run.route(wish, event)

    async def _commit(self, use: ToolUse, work: Work[ToolResult]) -> None:
        if work.finished():
            error = work.task.exception()
            result = _failure(f"{type(error).__name__}: {error}") if error else work.task.result()
            row = tool_row(use.call, result.get_serialized_output(), failed=not result.success)
        else:
            row = tool_row(use.call, UNKNOWN_OUTCOME if use.stage == "running" else NOT_STARTED, failed=True)
            await use.report_cut()
        await self._run.context.add_message(row)


def _failure(message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message})
