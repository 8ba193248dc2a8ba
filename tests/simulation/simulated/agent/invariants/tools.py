"""Invariants of tool calls and their results."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator_interactive.loop.tool_results import LATE_PREFIX, STILL_RUNNING
from simulated.agent.messages import Row, metadata_of, text_of
from simulated.simulation import Simulation

from .records import CHANGING_HOOKS, INTERRUPTED, Invariant, LoopOptions, ModelCall, RunRecord, ToolCallRecord
from .requests import call_ids

_MARK = re.compile(r"<r (use-\d+)>")
_TRUNCATION = re.compile(r"\[… \d+ characters are left out here …\]")
_TRUNCATION_CHARS = 60
# A row of late results has this much more text, once and for each call.
_LATE_CHARS = 80
_LATE_STAGE = "waiting for late results"
# A tool is cancelled one callback after its time limit.
_TOLERANCE_S = 0.05


def result_mark(mark: str) -> str:
    """Return the text that identifies the result of a call."""
    return f"<r {mark}>"


class CallPairs(Invariant):
    """In the log, the results of a batch directly follow its calls, and none is missing, however the run ends."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._open: list[str] = []
        self._excused: list[str] = []

    def on_row(self, row: Row) -> None:
        if row["role"] == "tool":
            call_id = row["tool_call_id"]
            if call_id in self._open:
                self._open.remove(call_id)
            elif call_id not in self._excused:
                self.violation(f"A result was stored without its call before it: {call_id}.")
            return
        if self._open:
            self.violation(f"A row of role '{row['role']}' precedes the results of {', '.join(self._open)}.")
        self._open = call_ids(row)

    def on_store_failure(self) -> None:
        self._excused, self._open = self._open, []

    def on_killed(self, _run: RunRecord) -> None:
        self.on_store_failure()

    def on_returned(self, run: RunRecord) -> None:
        if self._open and not run.was_abandoned:
            self.violation(f"The run has ended, and the log has no result of {', '.join(self._open)}.")
        self._open = []


class ChildProcesses(Invariant):
    """No process that a tool started outlives the run, or the tool if it ignores its cancellation."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._count = 0
        self._alive: dict[int, asyncio.Task[Any] | None] = {}

    @contextmanager
    def child(self) -> Iterator[None]:
        """Represent a process that its tool kills however the tool ends."""
        self._count += 1
        number = self._count
        self._alive[number] = asyncio.current_task()
        self.sim.count("child process")
        self.sim.log("child", f"process {number} starts")
        try:
            yield
        finally:
            self._alive.pop(number, None)
            self.sim.log("child", f"process {number} has ended")

    def on_returned(self, _run: RunRecord) -> None:
        for number, task in self._alive.items():
            if task not in self.sim.uncancellable:
                self.violation(f"The process {number} of a tool has outlived the run.")

    def on_killed(self, _run: RunRecord) -> None:
        self._alive.clear()

    def on_end(self) -> None:
        for number in self._alive:
            self.violation(f"The process {number} is left at the end.")


class ToolExecutions(Invariant):
    """The reported outcome of each tool call is its real outcome."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self.on_run_started(None)

    def on_run_started(self, _run: RunRecord | None) -> None:
        self._calls: dict[str, ToolCallRecord] = {}
        self._ids: dict[str, str] = {}
        self._committed: dict[str, str] = {}
        self._to_keep: list[ToolCallRecord] = []
        self._before = 0
        self._reported: list[dict[str, Any]] | None = None
        self.store_failed = False

    def get(self, mark: str) -> ToolCallRecord | None:
        return self._calls.get(mark)

    def readable(self) -> list[ToolCallRecord]:
        """Return the calls whose results the model must read, as far as their texts identify them."""
        calls = (call for call in self._calls.values() if call.end == "returned" and call.mark in self._committed)
        return [call for call in calls if call.mark in (call.text or "") and not self._is_uncancellable(call)]

    def on_store_failure(self) -> None:
        self.store_failed = True

    def on_row(self, row: Row) -> None:
        for call in row.get("tool_calls") or ():
            mark = json.loads(call["function"]["arguments"]).get("call", "")
            self._committed[mark] = call["id"]
            if self._ids.get(mark, call["id"]) != call["id"]:
                self.violation(f"The call {self._ids[mark]} has the id {call['id']} in the log.")

    def on_tool_started(self, call: ToolCallRecord) -> None:
        call.call_id = self._ids.get(call.mark, call.mark)
        call.is_early = call.mark not in self._committed
        if call.is_early:
            self.sim.count("tool began early")
        if call.is_early and not call.is_side_effect_free:
            self.violation(f"The tool '{call.tool}' has side effects, and started before its call was in the log.")
        if call.mark in self._calls:
            self.violation(f"The call {call.call_id} was executed twice.")
        self._calls[call.mark] = call

    def on_hook(self, event: str, data: dict[str, Any]) -> None:
        if event == "tool:pre":
            self._ids[data["tool_input"].get("call", "")] = data["tool_call_id"]
        # An answer that an urgent message interrupted keeps the calls that have started.
        elif event == "provider:response" and data["response"].finish_reason == INTERRUPTED:
            self._to_keep = [call for call in list(self._calls.values())[self._before :] if call.is_early]

    def on_model_called(self, _model_call: ModelCall) -> None:
        for call in self._calls.values():  # calls of a discarded answer have ended
            is_active = call.end is None and not self._is_uncancellable(call)
            if call.is_early and is_active and call.mark not in self._committed:
                self.violation(f"The tool '{call.tool}' is still active, and its result will never be read.")
        for call in self._to_keep:
            if call.mark not in self._committed and "modifying hooks" not in self.sim.features:
                self.violation(f"The tool '{call.tool}' had started; after an urgent message its call is missing.")
        self._to_keep, self._before = [], len(self._calls)

    def on_progress(self, event: str, data: dict[str, Any]) -> None:
        if event == "complete":
            self._reported = data["tools"]

    def on_returned(self, run: RunRecord) -> None:
        for call in self._calls.values() if run.ended_by_itself else ():
            was_discarded = call.mark not in self._committed
            timed_out = call.ended_s >= call.began_s + call.timeout_s - _TOLERANCE_S
            if call.end == "cancelled" and not (was_discarded or timed_out or run.is_out_of_time(call.ended_s)):
                self.violation(f"The tool '{call.tool}' was cancelled within its time limit and that of the run.")
        if self._reported is not None and not run.was_abandoned:
            self._check_outcomes(self._reported)

    def _check_outcomes(self, outcomes: list[dict[str, Any]]) -> None:
        ids = [each["id"] for each in outcomes]
        for each in dict.fromkeys(ids):
            if ids.count(each) > 1:
                self.violation(f"The end of the run reports the call {each} {ids.count(each)} times.")
        wanted = {call.call_id: call.tool for call in self._calls.values()}
        if not self.store_failed:
            wanted |= dict.fromkeys(self._committed.values(), "a tool")
        for call_id, tool in wanted.items():
            if call_id not in ids:
                self.violation(f"The end of the run does not report the call {call_id} of {tool}.")
        for outcome in outcomes:
            # If an answer was discarded, a call of the next one may have the same id.
            marks = [mark for mark, each in {**self._committed, **self._ids}.items() if each == outcome["id"]]
            expected = set[str]().union(*(self._expected(self._calls.get(mark)) for mark in marks)) or {"cancelled"}
            if outcome["outcome"] not in expected:
                actual = " or ".join(sorted(expected))
                self.violation(f"The end of the run reports {outcome['tool']} as '{outcome['outcome']}', not {actual}.")

    def _expected(self, call: ToolCallRecord | None) -> set[str]:
        if call is None:
            return {"cancelled", "failed"}
        cut = {"cancelled"} if call.is_side_effect_free else {"unknown"}
        if call.end in ("cancelled", "cancelled itself", None):
            return cut
        known = {"finished" if call.end == "returned" else "failed"}
        if (CHANGING_HOOKS | {"odd tools"}) & self.sim.features:
            known = {"finished", "failed"}
        return known | cut if self._is_uncancellable(call) else known

    def _is_uncancellable(self, call: ToolCallRecord) -> bool:
        return call.task in self.sim.uncancellable


class ToolResults(Invariant):
    """The model reads the result of each call once, unmixed with others, and only up to the size limit."""

    def __init__(self, sim: Simulation, options: LoopOptions, executions: ToolExecutions):
        super().__init__(sim)
        self._max_chars = options.max_result_chars
        self._executions = executions
        self._known: list[str] = []

    def on_row(self, row: Row) -> None:
        late = metadata_of(row).get("results")
        if row["role"] != "tool" and late is None:
            return
        self._check_size(row, late)
        ids = late or [row["tool_call_id"]]
        for mark in _MARK.findall(text_of(row)):
            call = self._executions.get(mark)
            if call is None or call.call_id not in ids:
                self.violation(f"The result of {mark} is in the row of {', '.join(ids)}.")
            if mark in self._known:
                self.violation(f"The result of {mark} was stored twice.")
            self._known.append(mark)

    def on_returned(self, run: RunRecord) -> None:
        if run.ended_by_itself and not CHANGING_HOOKS & self.sim.features and not self._executions.store_failed:
            for call in self._executions.readable():
                if call.mark not in self._known:
                    self.violation(f"The tool '{call.tool}' has a result, and the model cannot read it.")

    def _check_size(self, row: Row, late: list[str] | None) -> None:
        text, whole = text_of(row), metadata_of(row).get("whole", {})
        wholes = list(whole.values()) if isinstance(whole, dict) else [whole]
        most = self._max_chars + _TRUNCATION_CHARS
        if late is not None:
            most = (most + _LATE_CHARS) * len(late) + _LATE_CHARS
        if len(text) > most:
            self.violation(f"The row of a result has {len(text)} characters; the limit is {most}.")
        if len(_TRUNCATION.findall(text)) != len(wholes):
            self.violation("A result was truncated, and the model cannot see that.")
        if wholes:
            self.sim.count("result truncated")
        if any(isinstance(each, str) and len(each) <= self._max_chars for each in wholes):
            self.violation("The whole of a truncated result is not longer than the part that is shown.")


class LateResults(Invariant):
    """A call that was reported as still running has its result reported later, once, to the model."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._pending: list[str] = []
        self._excused: list[str] = []
        self._unread: list[str] = []
        self._lost: list[str] = []
        self._abandoned: list[str] = []

    def on_row(self, row: Row) -> None:
        metadata = metadata_of(row)
        if metadata.get("pending"):
            self.sim.count("result to follow")
            self._pending.append(row["tool_call_id"])
            if row["content"] != STILL_RUNNING:
                self.violation(f"The result of {row['tool_call_id']} is pending, and the model reads something else.")
        if "results" in metadata:
            self._arrive(row, metadata["results"])
        if row["role"] == "assistant" and not row.get("tool_calls") and self._pending:
            self.sim.turn(_LATE_STAGE, on=True)
            self.sim.loop.call_later(0.01, self._log_wait)

    def on_progress(self, event: str, _data: dict[str, Any]) -> None:
        if event == "thinking":
            self.sim.turn(_LATE_STAGE, on=False)

    def on_hook(self, event: str, _data: dict[str, Any]) -> None:
        if event == "execution:end":
            self.sim.turn(_LATE_STAGE, on=False)

    def on_model_called(self, _call: ModelCall) -> None:
        self._unread.clear()
        if self._lost:
            self.violation(f"The model waits for the results of {', '.join(self._lost)}: their process was killed.")
            self._lost.clear()

    def on_returned(self, run: RunRecord) -> None:
        for each in self._pending if not run.was_abandoned else ():
            self.violation(f"The late result of {each} never came.")
        if run.ended_by_itself and self._unread:
            self.violation(f"The model never read the late results of {', '.join(self._unread)}.")
        self._forget()

    def on_store_failure(self) -> None:
        self._excused += self._pending
        self._pending.clear()

    def on_killed(self, _run: RunRecord) -> None:
        """The outcome of active calls is unknown, and the model must be informed."""
        self._lost += [*self._pending, *self._excused]
        self._pending.clear()
        self._excused.clear()
        self._forget()

    def _forget(self) -> None:
        self._abandoned += [*self._pending, *self._excused]
        for each in (self._pending, self._excused, self._unread):
            each.clear()
        self.sim.turn(_LATE_STAGE, on=False)

    def _log_wait(self) -> None:
        if self.sim.is_at(_LATE_STAGE):
            self.sim.count("run waited for late results")
            self.sim.log("run", f"waits for {', '.join(self._pending)}")

    def _arrive(self, row: Row, ids: list[str]) -> None:
        self.sim.count("late results")
        text = text_of(row)
        if row["role"] != "user" or not text.startswith(LATE_PREFIX):
            self.violation("A row with late results has not their heading.")
        for each in ids:
            expected = (self._pending, self._excused, self._lost, self._abandoned)
            found = next((some for some in expected if each in some), None)
            if found is None:
                self.violation(f"An unexpected late result came for {each}.")
                continue
            found.remove(each)
            self._unread.append(each)
            if f"\n- call {each}, " not in text:
                self.violation(f"The row with the late result of {each} does not contain it.")
