"""One tool call on its way: prepared, executed, finalised, and closed whatever happens."""

from __future__ import annotations

import asyncio
import time
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

import structlog

from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.borders import told
from orchestrator_interactive.kernel.hooks import CONTINUE, too_late_for_a_no
from orchestrator_interactive.kernel.interop import own
from orchestrator_interactive.kernel.models import HookResult, ToolResult
from orchestrator_interactive.rows import tool_row
from orchestrator_interactive.run import RunDenied, changed
from orchestrator_interactive.work import HEED_WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orchestrator_interactive.kernel.interfaces import Tool
    from orchestrator_interactive.kernel.messages import ToolCall
    from orchestrator_interactive.run import Run

log = structlog.get_logger(__name__)

Stage = Literal["waiting", "announced", "running", "known", "reported", "closed"]

NOT_STARTED = "Not started: the run was stopped before this call."
UNCHECKED = "It ended; the run was stopped before its result had been checked, so the result is not shown."
UNKNOWN_OUTCOME = "Cancelled while it was running: its outcome is unknown."


class ToolUse:
    """One call on its way: prepared (the hooks may change or refuse it), executed, finalised.

    `stage` says how far it is; a stop may cut it anywhere. `result` is what is known of its outcome.
    """

    def __init__(self, run: Run, call: ToolCall) -> None:
        self._run = run
        self.call = call
        self.stage: Stage = "waiting"
        self.result: ToolResult | None = None
        self.wishes: list[tuple[str, HookResult]] = []
        self._input = call.arguments
        self._announced_at = 0.0
        self._reached: Stage = "waiting"

    async def go(self) -> None:
        tool = self._run.tools.get(self.call.name)
        if tool is None:
            known = ", ".join(sorted(self._run.tools)) or "none"
            self.result = failure(f"There is no tool '{self.call.name}'. Tools: {known}.")
            return
        try:
            await self._prepare()
        except RunDenied as e:
            self.result = failure(f"Denied: {e}")
            return
        if self._is_closed():  # a hook was deaf to the end of the run
            return
        await self._announce(tool)
        if self._run.stop.is_cancelled:
            return
        self.stage = "running"
        self._run.stop.register_tool_start(self.call.id, self.call.name)
        try:
            self.result = await _executed(tool, self._input)
        finally:
            self._run.stop.register_tool_complete(self.call.id)
        if not self._is_closed():
            await self._finalise(self.result)

    def close(self) -> dict[str, Any]:
        """The call's row, whatever became of it. A tool that goes on after this is not heard any more."""
        self._reached, self.stage = self.stage, "closed"
        if self.result is None:
            self.result = failure(UNKNOWN_OUTCOME if self._reached == "running" else NOT_STARTED)
        elif self._reached == "known" and self._run.hooks.listens(_told_by(self.result)):
            self.result = failure(UNCHECKED)  # a hook might have changed or refused it
        content, failed = _written_down(self.result)
        return tool_row(self.call, content, failed=failed)

    async def report_cut(self) -> None:
        """Close the events of a call that was cut, as far as their listeners let us."""
        if self._reached not in {"announced", "running", "known"}:
            return
        if self._reached == "running":
            await self._told(self._tell_cut())
        await self._told(self._report_end())

    async def _told(self, telling: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(HEED_WITHIN_S):
                await telling
        except TimeoutError:
            log.warning("tool.report_abandoned", tool=self.call.name)

    async def _tell_cut(self) -> None:
        error = self.result.error if self.result else None
        wish = await self._run.hooks.emit(events.TOOL_ERROR, self._payload(tool_result=self.result, error=error))
        # It waits, like every other, until all calls of the batch have their results.
        self.wishes.append((events.TOOL_ERROR, too_late_for_a_no(wish, events.TOOL_ERROR)))

    def _is_closed(self) -> bool:
        return self.stage == "closed"

    async def _prepare(self) -> None:
        result = await self._consult(events.TOOL_PRE)
        self._input = changed(result, "tool_input", self._input)

    async def _announce(self, tool: Tool) -> None:
        self.stage, self._announced_at = "announced", time.monotonic()
        label = _label(tool, self._input)
        more = {} if label is None else {"label": label}
        await self._run.progress("tool:start", tool=self.call.name, args=self._input, id=self.call.id, **more)

    async def _finalise(self, result: ToolResult) -> None:
        self.stage = "known"
        try:
            wish = await self._consult(_told_by(result), tool_result=result, error=result.error)
        except RunDenied as e:
            self.result = failure(f"The result was withheld: {e}")
        else:
            self.result = _changed_result(wish, result)
        if self._is_closed():
            return
        self.stage = "reported"
        await self._report_end()

    async def _consult(self, event: str, **more: Any) -> HookResult:
        """Ask the hooks; what they wish to inject waits until every call of the batch has its result."""
        if not self._run.hooks.listens(event):
            return CONTINUE
        result = await self._run.hooks.emit(event, self._payload(**more))
        if result.action == "inject_context":
            self.wishes.append((event, result))
            return result
        if beside_a_question := result.injections():
            wish = HookResult(action="inject_context", context_injections=beside_a_question)
            self.wishes.append((event, wish))
            result = result.model_copy(update={"context_injections": []})
        return await self._run.route(result, event)

    async def _report_end(self) -> None:
        await self._run.progress(
            "tool:end",
            tool=self.call.name,
            duration=time.monotonic() - self._announced_at,
            id=self.call.id,
            success=self.result is not None and self.result.success,
        )

    def _payload(self, **more: Any) -> dict[str, Any]:
        # Hooks get a copy of the input: they change it by saying so.
        given = deepcopy(self._input)
        return {"tool_name": self.call.name, "tool_input": given, "tool_call_id": self.call.id, **more}


async def _executed(tool: Tool, arguments: dict[str, Any]) -> ToolResult:
    try:
        return _as_result(await tool.execute(arguments))
    except (SystemExit, Exception) as e:  # a tool may not take the run down
        log.exception("tool.failed", tool=tool.name)
        return ToolResult(success=False, error={"message": told(e), "type": type(e).__name__})


def _as_result(returned: Any) -> ToolResult:
    """A `ToolResult`; anything else that a tool returns is its output."""
    result = own(returned)
    return result if isinstance(result, ToolResult) else ToolResult(output=result)


def _changed_result(wish: HookResult, result: ToolResult) -> ToolResult:
    """What the hooks made of a result; a text or other data in its place is its output."""
    value = (wish.data or {}).get("tool_result")
    if isinstance(value, str) or (isinstance(value, dict) and not value.keys() <= ToolResult.model_fields.keys()):
        return result.model_copy(update={"output": value})
    return changed(wish, "tool_result", result)


def _written_down(result: ToolResult) -> tuple[str | list[dict[str, Any]], bool]:
    """What the model reads of a result, and whether it is a failure."""
    if result.content:
        return [block.model_dump(exclude_none=True) for block in result.content], not result.success
    try:
        return result.get_serialized_output(), not result.success
    except Exception as e:  # an output of a tool's own kind may not take the run down
        log.exception("tool.output_unreadable")
        return f"The tool's output cannot be written down: {type(e).__name__}.", True


def _label(tool: Tool, arguments: dict[str, Any]) -> str | None:
    label = getattr(tool, "label", None)
    if not callable(label):
        return None
    try:
        return str(label(arguments))
    except (asyncio.CancelledError, SystemExit, Exception):  # a tool may not take the run down
        log.exception("tool.label_failed", tool=tool.name)
        return None


def _told_by(result: ToolResult) -> str:
    return events.TOOL_POST if result.success else events.TOOL_ERROR


def failure(message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message})
