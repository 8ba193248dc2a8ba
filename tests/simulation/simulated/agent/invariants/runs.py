"""Invariants of runs: events, stops, retries, budgets, shown texts, and what is left after the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from orchestrator_interactive.kernel.contracts.errors import LLMError
from orchestrator_interactive.kernel.contracts.messages import Usage
from orchestrator_interactive.kernel.error_boundary import error_text
from simulated.agent.messages import Row, metadata_of
from simulated.engine import stack_of
from simulated.simulation import InjectedError, Simulation

from .records import FILTERED, INTERRUPTED, Invariant, LoopOptions, ModelCall, RunRecord, StopRecord, ToolCallRecord

Data = dict[str, Any]

# Events of the session and of modules, which also occur outside of runs.
_ANY_TIME = ("session:", "module:", "context:")
# The other names of the statuses in the progress.
_STATUSES = {
    "execution:end": {"success": "completed", "incomplete": "completed", "cancelled": "cancelled", "error": "error"},
    "orchestrator:complete": {k: k for k in ("success", "incomplete", "cancelled")} | {"error": "incomplete"},
    "session": {"success": "completed", "incomplete": "completed", "cancelled": "cancelled", "error": "failed"},
}
_IN_A_RUN = ("tool:", "provider:", "prompt:", "injection:", "progress t", "progress i")


class Events(Invariant):
    """Each opening event is followed by its closing event, once, within its run; all sources agree on the status."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._run: RunRecord | None = None
        self._order: list[str] = []
        self._calls: dict[str, Counter[str]] = {}
        self._shown: set[str] = set()
        self._model_calls = 0
        self._announced = False

    def on_run_started(self, run: RunRecord) -> None:
        self._run, self._order, self._calls, self._model_calls = run, [], {}, 0
        self._shown, self._announced = set(), False

    def on_model_called(self, _call: ModelCall) -> None:
        self._model_calls += 1

    def on_tool_started(self, call: ToolCallRecord) -> None:
        self._call(call.call_id)["executed"] += 1

    def on_hook(self, event: str, data: Data) -> None:
        if event.startswith(_ANY_TIME):
            return
        self._note(event)
        self._check_announcement(event, data)
        if event.startswith("tool:"):
            self._call(data["tool_call_id"])[event] += 1
        if event == "execution:end" and self._run is not None:
            self._run.reports_end(self.sim.now())
            if self._run.stops:
                self._run.was_ending = self._is_first_step_since(self._run.stops[0])
        if event in _STATUSES and self._run is not None:
            self._run.statuses[event] = data["status"]

    def on_progress(self, event: str, data: Data) -> None:
        self._note(f"progress {event}")
        if event in {"tool:start", "tool:end"}:
            self._call(data["id"])[f"progress {event}"] += 1
            (self._shown.add if event == "tool:start" else self._shown.discard)(data["id"])
        if event == "tool:progress":
            self.sim.count("tool report")
            if data["id"] not in self._shown:
                self.violation(f"A report of the call {data['id']} is outside of its tool:start and tool:end.")
        if event == "complete" and self._run is not None:
            self._run.statuses["progress"] = data["status"]

    def on_returned(self, run: RunRecord) -> None:
        if not run.entered or (run.cancelled_s is not None and not self._order):
            return  # cancelled before its first step
        self._check_frame()
        for call_id, counts in self._calls.items() if not run.was_abandoned else ():
            self._check_call(call_id, counts)
        self._check_answers(run)
        self._check_statuses(run)

    def _check_announcement(self, event: str, data: Data) -> None:
        """An announced model call has an outcome, unless an urgent message is read first."""
        if event == "provider:request":
            if self._announced:
                self.violation("A model call was announced, and its outcome was not reported.")
            self._announced = True
        was_urgent = event == "injection:applied" and any(text.startswith("!") for text in data["messages"])
        if was_urgent or event in {"provider:response", "provider:error"}:
            self._announced = False

    def _is_first_step_since(self, stop: StopRecord) -> bool:
        """Return whether the run did nothing between its stop and its end."""
        lines = self.sim.lines[stop.line :]
        did = next((line.what for line in lines if line.who not in {"people", "agent"}), None)
        return did is None or did.startswith("execution:end")

    def _note(self, event: str) -> None:
        if self._run is None or self._run.over:
            self.violation(f"'{event}' came while no run was active.")
        self._order.append(event)

    def _call(self, call_id: str) -> Counter[str]:
        return self._calls.setdefault(call_id, Counter())

    def _check_frame(self) -> None:
        frame = ("execution:start", "execution:end", "orchestrator:complete", "progress complete")
        counts = {event: self._order.count(event) for event in frame}
        for event, count in counts.items():
            if count != 1:
                self.violation(f"'{event}' came {count} times in one run.")
        if set(counts.values()) != {1}:
            return
        start, end, *_ = places = [self._order.index(event) for event in frame]
        if places != sorted(places):
            self.violation(f"The events of the run have the wrong order: {[e for e in self._order if e in frame]}.")
        for place, event in enumerate(self._order):
            if event.startswith(_IN_A_RUN) and not start < place < end:
                self.violation(f"'{event}' came outside of execution:start and execution:end.")

    def _check_call(self, call_id: str, counts: Counter[str]) -> None:
        closed = counts["tool:post"] + counts["tool:error"]
        # A call that is denied, or whose tool does not exist, is reported by tool:error alone.
        was_refused = not counts["executed"] and not counts["tool:post"] and counts["tool:error"] == 1
        if closed != counts["executed"] and not was_refused:
            self.violation(f"The call {call_id} was executed {counts['executed']} times, and closed {closed} times.")
        if counts["tool:pre"] < counts["executed"]:
            self.violation(f"The call {call_id} was executed without tool:pre.")
        started, ended = counts["progress tool:start"], counts["progress tool:end"]
        if started != ended:
            self.violation(f"The progress of call {call_id} started {started} times, and ended {ended} times.")
        if counts["tool:pre"] and not counts["executed"]:
            self.sim.count("tool call refused or cut before it ran")

    def _check_answers(self, run: RunRecord) -> None:
        if run.cut_s is not None or run.was_out_of_time:
            return
        # An urgent message may interrupt a call before it has begun.
        reported = self._order.count("provider:response") + self._order.count("provider:error")
        if self._model_calls > reported:
            self.violation(f"The model was called {self._model_calls} times; {reported} outcomes were reported.")
        if self._announced and run.ended_by_itself:
            self.violation("A model call was announced, and the run ended without it.")

    def _check_statuses(self, run: RunRecord) -> None:
        status = run.statuses.get("progress", "")
        if status not in _expected_statuses(run):
            cut = "" if run.cut_s is None else " that was stopped or cancelled"
            self.violation(f"A run{cut} reports the status '{status}' (error: {run.error!r}).")
        for source, names in _STATUSES.items():
            if run.statuses.get(source) != names.get(status):
                self.violation(f"The progress reports '{status}', {source} '{run.statuses.get(source)}'.")


def _expected_statuses(run: RunRecord) -> set[str]:
    if run.is_certainly_stopped and not run.was_denied:  # a denied run may be stopped afterwards
        return {"cancelled"} if run.error is None else {"cancelled", "error"}
    if run.cut_s is not None:
        return {"success", "incomplete", "cancelled", "error"}
    return {"error"} if run.error is not None else {"success", "incomplete"}


# Callbacks take a little virtual time, and a cancelled task is scheduled one callback later.
_TOLERANCE_S = 0.1
_CANCELLED_WITHIN_S = 0.3
# The agent waits this long for hooks, stores and sinks after its tools were cut.
_ENDED_WITHIN_S = 2.0
# The end is reported to hooks twice, to the sink, and to listeners of cancellations.
_REPORTED_WITHIN_S = 4 * _CANCELLED_WITHIN_S
_DELAYS_THE_END = {"slow hooks", "hanging hooks", "uncancellable hooks", "slow store", "slow sink"}


@dataclass(frozen=True, slots=True)
class Activity:
    """An active model call or tool."""

    kind: Literal["model", "tool"]
    name: str
    run: RunRecord
    began_s: float
    timeout_s: float | None = None


class StopEffects(Invariant):
    """After a stop nothing new starts, and active work ends within its time limit."""

    def __init__(self, sim: Simulation, options: LoopOptions):
        super().__init__(sim)
        self._grace_s = options.stop_grace_s

    def started(
        self, kind: Literal["model", "tool"], name: str, run: RunRecord, timeout_s: float | None = None
    ) -> Activity:
        now = self.sim.now()
        if run.over:
            self.violation(f"The {kind} '{name}' started after its run was over.")
        if run.stops:
            self.violation(f"The {kind} '{name}' started after the stop.")
        elif run.cancelled_s is not None and now > run.cancelled_s + _TOLERANCE_S:
            self.violation(f"The {kind} '{name}' started {now - run.cancelled_s:.3f} s after the run was cancelled.")
        return Activity(kind, name, run, now, timeout_s)

    def ended(self, activity: Activity, *, uncancellable: bool) -> None:
        limit_s = self._limit_s(activity)
        if uncancellable or limit_s is None:
            return
        if self.sim.now() > max(limit_s, activity.began_s) + _TOLERANCE_S:
            late_s = self.sim.now() - limit_s
            self.violation(f"The {activity.kind} '{activity.name}' was active {late_s:.3f} s after its time limit.")

    def on_returned(self, run: RunRecord) -> None:
        if run.cut_s is None:
            return
        since_s = self.sim.now() - self._tools_end_s(run)
        run.was_abandoned = since_s >= _ENDED_WITHIN_S
        delayed = _DELAYS_THE_END & self.sim.features
        within_s = _ENDED_WITHIN_S + _REPORTED_WITHIN_S if delayed else 2 * _CANCELLED_WITHIN_S
        if since_s > within_s + _TOLERANCE_S and "uncancellable hooks" not in self.sim.features:
            self.violation(f"The run ended {since_s - within_s:.3f} s after its time limit.")

    def _limit_s(self, activity: Activity) -> float | None:
        run = activity.run
        if activity.kind == "model":
            return run.cut_s
        limits = [] if activity.timeout_s is None else [activity.began_s + activity.timeout_s]
        if run.cut_s is not None:
            limits.append(self._tools_end_s(run))
        if run.deadline_s is not None:
            limits.append(run.deadline_s + self._grace_s)
        return min(limits, default=None)

    def _tools_end_s(self, run: RunRecord) -> float:
        """Return when the tools of a run that was cut must end."""
        gracefully_s = (run.cut_s or 0.0) + self._grace_s
        return gracefully_s if run.immediately_cut_s is None else min(run.immediately_cut_s, gracefully_s)


class AfterRun(Invariant):
    """After a run has returned, nothing of it continues: no task, no row, no unhandled error."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._run: RunRecord | None = None

    def on_run_started(self, run: RunRecord) -> None:
        self._run = run

    def on_row(self, row: Row) -> None:
        if self._run is None or self._run.over:
            self.violation(f"A row of role '{row['role']}' was added while no run was active.")

    def on_returned(self, run: RunRecord) -> None:
        left = [task for task in self.sim.loop.pending() if not self._is_excused(task)]
        for task in left:
            if not task.cancelling():
                self.violation(f"A task is left when the run has returned: {stack_of(task)}.")
        self.sim.loop.call_later(0.1, self._check_again, left)
        reported = run.statuses.get("execution:end", "cancelled")
        if isinstance(run.error, asyncio.CancelledError):
            if run.cancelled_s is None:
                self.violation("The run raised CancelledError without a cancellation.")
            if reported != "cancelled":
                self.violation(f"The run raised CancelledError, and reported its end as '{reported}'.")
        elif run.error is not None and not isinstance(run.error, LLMError | InjectedError):
            self.violation(f"The run failed with an unexpected error: {run.error!r}.")
        elif run.error is None and run.cancelled_s is not None and reported == "cancelled":
            self.violation("The task was cancelled, and the run returned normally.")

    def on_end(self) -> None:
        for task in self.sim.loop.tasks:
            if not task.done() and not self.sim.is_actor(task):
                self.violation(f"A task is left at the end: {stack_of(task)}.")
            elif task.done() and getattr(task, "_log_traceback", False):
                self.violation(f"The error of {task.get_name()} was never retrieved: {task.exception()!r}.")

    def _is_excused(self, task: asyncio.Task[Any]) -> bool:
        return self.sim.is_actor(task) or task in self.sim.uncancellable

    def _check_again(self, left: list[asyncio.Task[Any]]) -> None:
        """Check tasks that were cancelled at the end: they need one more callback."""
        for task in left:
            if not task.done() and not self._is_excused(task):
                self.violation(f"A task is left long after its run: {stack_of(task)}.")


# The text in the log if a model refused without a text.
_DECLINED = "[No answer: the request was refused.]"


class ShownTexts(Invariant):
    """Text of the model is shown to users once, except for remarks with tool calls that reply to no urgent message.

    An answer that was cut at its length limit and its continuation are one text for users.
    """

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self.on_run_started(None)

    def on_run_started(self, _run: RunRecord | None) -> None:
        self._texts: list[str] = [""]
        self._shown: list[str] = []
        self._finish_reason: str | None = None
        self._store_failed = False
        self._is_urgent = False

    def on_store_failure(self) -> None:
        self._store_failed = True

    def on_hook(self, event: str, data: Data) -> None:
        if event == "provider:response":
            self._finish_reason = data["response"].finish_reason

    def on_row(self, row: Row) -> None:
        metadata = metadata_of(row)
        if row["role"] == "assistant" and metadata.get("source") != "hook":
            has_calls, is_reply = bool(row.get("tool_calls")), self._is_urgent
            self._is_urgent = False
            if has_calls:
                self._texts.append("")
            if not has_calls or self._finish_reason == INTERRUPTED or is_reply:
                content = row["content"]
                text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
                self._texts[-1] += "" if text == _DECLINED else text
            if has_calls and is_reply and self._finish_reason != INTERRUPTED:
                self._texts.append("")
        elif "injections" in metadata or "results" in metadata:
            self._texts.append("")
            if "injections" in metadata:
                self._is_urgent = "!<m" in str(row["content"])
        elif row["role"] == "user" and metadata.get("source") != "hook":
            self._is_urgent = False  # the answer to the prompt is the answer to urgent messages before it

    def on_progress(self, event: str, data: Data) -> None:
        if event == "text":
            self._shown.append(data["text"])

    def on_returned(self, run: RunRecord) -> None:
        if run.cancelled_s is not None or run.was_denied or run.was_abandoned:
            return
        if run.error is not None and self._store_failed:
            return  # users may see a text that is not in the log
        shown = ["".join(text.split()) for text in (*self._shown, run.answer or "") if text.strip()]
        stored = ["".join(text.split()) for text in self._texts if text.strip()]
        if shown != stored:
            self.violation(f"The model's texts are {stored}; users were shown {shown}.")


_USAGE_KEYS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_MAX_CONTINUATIONS = 3
_CUT_SHORT = {"max_tokens", "length"}


class Budgets(Invariant):
    """The usage of a run is reported; a run that has used up its budget answers once more, without tools.

    `limits` are those that the run has reached.
    """

    def __init__(self, sim: Simulation, options: LoopOptions):
        super().__init__(sim)
        self._options = options
        self._conversation = _usage_of(None)
        self.limits: list[str] = []

    def on_run_started(self, run: RunRecord) -> None:
        self._run = run
        self._spent = _usage_of(None)
        self._call = [_usage_of(None)]
        self._summary = _usage_of(None)
        self._began_s = self.sim.now()
        self.limits = []
        self._answers = self._turns = 0
        self._last_reason: str | None = None
        self._owes_answer = False
        self._continued = 0

    def call_reported(self, usage: Usage | None) -> None:
        """Note the usage that a model reports at the start of a call. An interrupted call costs this much."""
        self._call = [_usage_of(usage)]

    def call_completed(self, usage: Usage | None) -> None:
        self._call.append(_usage_of(usage))

    def summarized(self, usage: Usage | None) -> None:
        self._summary = _usage_of(usage)

    def restarted(self, rows: list[Row]) -> None:
        """Restore the usage of the conversation from the log, as the next process does."""
        self._conversation = _usage_of(None)
        for row in rows:
            if usage := metadata_of(row).get("usage"):
                cost = usage["cost_usd"]
                _add(self._conversation, {**usage, "cost_usd": None if cost is None else Decimal(cost)})

    def on_row(self, row: Row) -> None:
        if row.get("tool_calls"):
            self._turns, self._continued = self._turns + 1, 0
        if {"injections", "results"} & metadata_of(row).keys():
            self._owes_answer, self._continued = True, 0

    def on_hook(self, event: str, data: Data) -> None:
        match event:
            case "provider:response":
                self._answered(data["usage"], data["response"].finish_reason)
            case "provider:error":
                self._close_call(self._call[0])
                if data["error"]["type"] == FILTERED:
                    self._last_reason, self._continued, self._owes_answer = "refusal", 0, False
            case "context:post_compact" if (reported := data.get("usage")) is not None:
                if reported != _as_reported(self._summary):
                    self.violation(f"A summary used {self._summary}; reported is {reported}.")
                _add(self._spent, self._summary)

    def on_progress(self, event: str, data: Data) -> None:
        if event == "complete":
            self._completed(data)

    def on_thinking_reported(self) -> None:
        options, spent = self._options, self._spent
        tokens, seconds = spent["input_tokens"] + spent["output_tokens"], self.sim.now() - self._began_s
        values = {
            "max_iterations": self._turns,
            "max_tokens": tokens,
            "max_cost_usd": spent["cost_usd"] or 0,
            "max_duration_s": seconds,
        }
        reached = [k for k, v in values.items() if (limit := getattr(options, k)) is not None and v >= limit]
        if not self.limits and reached:
            self._owes_answer = True
        self.limits = [name for name in values if name in reached or name in self.limits]

    def _answered(self, usage: Usage | None, finish_reason: str | None) -> None:
        self._answers += 1
        self._last_reason = finish_reason
        if _usage_of(usage) not in self._call:
            self.violation(f"The agent reports an answer that used {_usage_of(usage)}; it used {self._call}.")
        self._close_call(_usage_of(usage))
        if self.limits and not self._owes_answer:
            self.violation(f"The run continues beyond its limit ({', '.join(self.limits)}).")
        self._continued = self._continued + 1 if finish_reason in _CUT_SHORT else 0
        self._owes_answer = 0 < self._continued <= _MAX_CONTINUATIONS
        if self._continued > _MAX_CONTINUATIONS + 1:
            self.violation(f"An answer was continued {self._continued - 1} times.")

    def _completed(self, data: Data) -> None:
        run = self._run
        for used in self._call:  # a stop may cut a call whose usage was never reported
            total = {**self._spent}
            _add(total, used)
            if _as_reported(total) == data["usage"]:
                self._close_call(used)
                break
        self._check("run", self._spent, data["usage"])
        _add(self._conversation, self._spent)
        if self._answers or not run.begins_a_process:
            self._check("conversation", self._conversation, data["conversation_usage"])
        if run.error is None and run.cut_s is None and data["status"] != "error" and data.get("reason") != "denied":
            self._check_reason(run, data)
        if "reason" in data:
            self.sim.count(f"run incomplete: {data['reason']}")

    def _close_call(self, used: Data) -> None:
        _add(self._spent, used)
        self._call = [_usage_of(None)]

    def _check_reason(self, run: RunRecord, data: Data) -> None:
        expected: set[str | None] = set(self.limits) or {None}
        if run.was_out_of_time:
            expected = {"max_duration_s"}
        elif self._last_reason == "refusal":
            expected = {"refusal"}
        elif self._last_reason in _CUT_SHORT:
            expected = {"length"}
        if data.get("reason") not in expected:
            names = " or ".join(str(each) for each in expected)
            self.violation(f"The run ended because of '{data.get('reason')}'; it is {names}.")
        if (data["status"] == "incomplete") != (data.get("reason") is not None):
            self.violation(f"The run ended as '{data['status']}', with the reason '{data.get('reason')}'.")

    def _check(self, whose: str, expected: Data, reported: Data) -> None:
        if reported != _as_reported(expected):
            self.violation(f"The {whose} used {expected}; reported is {reported}.")


def _usage_of(usage: Usage | None) -> Data:
    if usage is None:
        return {**dict.fromkeys(_USAGE_KEYS, 0), "cost_usd": None}
    return {**{key: getattr(usage, key) or 0 for key in _USAGE_KEYS}, "cost_usd": usage.cost_usd}


def _as_reported(total: Data) -> Data:
    cost = total["cost_usd"]
    return {**total, "cost_usd": None if cost is None else str(cost)}


def _add(total: Data, more: Data) -> None:
    for key in _USAGE_KEYS:
        total[key] += more[key]
    if more["cost_usd"] is not None:
        total["cost_usd"] = (total["cost_usd"] or Decimal()) + more["cost_usd"]


_MAX_RETRY_AFTER_S = 60.0
_MAX_BACKOFF_S = 30.0
_MAX_REDUCTIONS = 3
_CLOCK_TOLERANCE_S = 1e-6
_FINAL_ERRORS = {FILTERED, "InvalidRequestError", "ContextLengthError"}


class Retries(Invariant):
    """A failed model call is retried, sent to another provider, or made smaller, within the configured limits."""

    def __init__(self, sim: Simulation, options: LoopOptions):
        super().__init__(sim)
        self._options = options
        self._with_budget: set[str] = set()

    def on_run_started(self, _run: RunRecord) -> None:
        self._names = list(self._options.providers)
        self._failures = 0
        self._reductions = 0
        self._next: Literal["retry", "fallback", "smaller", "give up"] | None = None
        self._error: Data = {}
        self._not_before_s = 0.0
        self._unreported: list[str] = []

    def on_killed(self, _run: RunRecord) -> None:
        self._with_budget.clear()  # budgets are in memory only

    def on_model_called(self, call: ModelCall) -> None:
        self._check_turn(call.name, "A request")
        if self._next not in {None, "smaller"}:
            self.violation(f"After {self._error.get('error')} the model was called again; expected was: {self._next}.")
        if self._next == "smaller":
            self._with_budget.add(call.name)
        if call.name in self._with_budget and call.token_budget is None:
            self.violation(f"A request to '{call.name}' was too long, and this one has no limit.")
        if self.sim.now() < self._not_before_s - _CLOCK_TOLERANCE_S:
            self.violation(f"The model was called {self._not_before_s - self.sim.now():.3f} s too early.")
        self._next = None

    def on_hook(self, event: str, data: Data) -> None:
        match event:
            case "provider:error":
                self._failed(data)
            case "provider:retry":
                self._retried(data)
            case "provider:fallback":
                self._expect("fallback", data)
                self._names.pop(0)
                self._failures = self._reductions = 0
                self._check_turn(data["to"], "A fallback")
                self._unreported.append(f"fallback {data['to']}")
            case "provider:response":
                self._failures = self._reductions = 0

    def on_progress(self, event: str, data: Data) -> None:
        """The progress reports retries and fallbacks after the hooks."""
        if event == "retrying":
            self.sim.count("model call retried")
            self._unreported.remove(f"retry {data['attempt']}")
            if not data["attempt"] <= data["max_attempts"] == self._options.max_retries:
                self.violation(f"The progress reports attempt {data['attempt']} of {data['max_attempts']}.")
        if event == "fallback":
            self.sim.count("fallback model called")
            self._unreported.remove(f"fallback {data['to']}")

    def on_returned(self, run: RunRecord) -> None:
        if run.cut_s is not None or run.was_denied or run.was_out_of_time or isinstance(run.error, InjectedError):
            return
        if self._unreported:
            self.violation(f"The progress did not report: {', '.join(self._unreported)}.")
        ended = {"type": type(run.error).__name__, "msg": error_text(run.error)} if run.error else None
        if self._next == "give up" and ended != self._error["error"]:
            self.violation(f"The run ended with {run.error!r}; the failure was {self._error['error']}.")
        elif self._next not in {None, "give up"}:
            self.violation(f"The run ended after {self._error.get('error')}; expected was: {self._next}.")

    @property
    def _what(self) -> object:
        return self._error.get("error")

    def _failed(self, failure: Data) -> None:
        self._error, kind = failure, failure["error"]["type"]
        waits = failure.get("retryable") and (failure.get("retry_after") or 0) <= _MAX_RETRY_AFTER_S
        if kind == "ContextLengthError" and self._reductions < _MAX_REDUCTIONS:
            self.sim.count("request made smaller")
            self._reductions, self._next = self._reductions + 1, "smaller"
        elif waits and self._failures < self._options.max_retries:
            self._next = "retry"
        elif len(self._names) > 1 and kind not in _FINAL_ERRORS:
            self._next = "fallback"
        elif kind == FILTERED:  # as if the model had refused
            self._next = None
        else:
            self._next = "give up"

    def _retried(self, data: Data) -> None:
        self._expect("retry", data)
        backoff_s = min(self._options.retry_base_delay_s * 2.0**self._failures, _MAX_BACKOFF_S)
        required_s = self._error.get("retry_after")
        least_s, most_s = (backoff_s / 2, backoff_s) if required_s is None else (required_s, required_s + backoff_s / 2)
        if not least_s <= data["delay_s"] <= most_s:
            self.violation(f"The delay is {data['delay_s']:.3f} s; it must be {least_s:.3f} to {most_s:.3f} s.")
        self._failures += 1
        if data["attempt"] != self._failures:
            self.violation(f"Attempt {data['attempt']} is reported; it is number {self._failures}.")
        self._not_before_s = self.sim.now() + data["delay_s"]
        self._unreported.append(f"retry {data['attempt']}")

    def _expect(self, step: str, data: Data) -> None:
        if self._next != step:
            self.violation(f"After {self._error.get('error')} came a {step}; expected was: {self._next}.")
        self._check_turn(data["provider"], f"A {step}")
        self._next = None

    def _check_turn(self, name: str, what: str) -> None:
        if name != self._names[0]:
            self.violation(f"{what} goes to the provider '{name}' instead of '{self._names[0]}'.")
