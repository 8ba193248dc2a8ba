"""Resume a run from the rows of its conversation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in_field, calls_of, function_of, is_call
from orchestrator_interactive.kernel.hooks import CONTINUE, without_denial
from orchestrator_interactive.loop.outcome import RunOutcome, usage_in
from orchestrator_interactive.loop.run import RunSuspended
from orchestrator_interactive.loop.tool_call import is_repeatable, label_of
from orchestrator_interactive.loop.tool_results import (
    CompletedCall,
    lost_results_row,
    postponed_in,
    results_in,
    unknown_row,
)
from orchestrator_interactive.transcript.answer_parts import InterimTexts, partial_reason_of
from orchestrator_interactive.transcript.rows import (
    call_ids,
    delivered_ids_in,
    is_of_hook,
    is_prompt,
    metadata_of,
    text_of,
)
from orchestrator_interactive.transcript.transcript import UNREADABLE, message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import Tool
    from orchestrator_interactive.loop.loop import Loop
    from orchestrator_interactive.loop.tool_results import ToolOutcome
    from orchestrator_interactive.transcript.answer_parts import InterimText

    Row = dict[str, Any]


async def resume_run(loop: Loop) -> None:
    """Announce a run, and resume it from its log: emit its texts again, and settle its unanswered tool calls.

    Calls of tools marked `side_effect_free` or `repeatable` are repeated, and so are calls that wait for an approval;
    the others get the result "outcome unknown". Hook injections of `execution:start` are added after the missing tool
    results.

    Raises:
        RuntimeError: the conversation has no run.
    """
    run = loop.run
    rows = await run.context.get_messages()
    prompt = "" if (begin := _last_prompt(rows)) is None else text_of(rows[begin])
    data = {"prompt": prompt, "resumed": True}
    hook_result = (
        await run.await_hooks(run.hooks.emit(events.EXECUTION_START, data), events.EXECUTION_START) or CONTINUE
    )
    rows = await run.context.get_messages()  # hooks may have changed them
    is_waiting = run.coordinator.get_capability("approvals.is_waiting") if run.coordinator else None

    def may_repeat(call: ToolCall) -> bool:
        return is_repeatable(run.tools.get(call.name)) or (is_waiting is not None and is_waiting(call.id))

    logged = logged_run(rows, may_repeat)
    run.session_state.usage = usage_in(logged.earlier_rows)
    run.session_state.note_calls(rows)
    run.usage, run.iterations, run.interim_texts = usage_in(logged.rows), logged.iterations, logged.interim_texts
    loop.state.turns, loop.state.continuations = logged.turns, logged.continuations
    for ids, iteration in logged.deliveries:
        run.inbox.note_delivered(ids, iteration)
    await run.progress("executing", prompt=logged.prompt, run=run.id)
    if run.inbox.pending:
        await loop.remove_delivered(rows)
    await _settle_calls(loop, logged, may_repeat)
    run.session_state.knows_log = True
    hook_result = without_denial(hook_result, events.EXECUTION_START)
    await run.await_hooks(run.route(hook_result, events.EXECUTION_START), events.EXECUTION_START)


async def _settle_calls(loop: Loop, logged: LoggedRun, may_repeat: Callable[[ToolCall], bool]) -> None:
    """Report the calls with an unknown outcome, also those of earlier takeovers, and settle the unanswered ones."""
    run, calls, tools = loop.run, loop.calls, loop.run.tools
    invalid = {call.id for call in logged.last_calls if problem_of(call.arguments) is not None}
    forced = run.options.force_respond_tools
    loop.state.must_answer = any(call.name in forced and call.id not in invalid for call in logged.last_calls)
    # Calls that have no effect, or did not start, are repeated.
    repeated = {call_id: call for call_id, call in logged.unanswered.items() if call_id in invalid or may_repeat(call)}
    unknown = [call for call_id, call in logged.unanswered.items() if call_id not in repeated]
    calls.completed += [each for each in logged.ends(tools) if each.outcome != "lost" or each.call.id not in repeated]
    lost = [each for each in calls.completed if each.outcome == "lost"]
    await run.progress(
        "resumed",
        unknown=[each.label or each.call.name for each in lost],
        retried=[
            _called(tools, call) or call.name
            for call in (*repeated.values(), *logged.postponed)
            if call.id not in invalid
        ],
        tools=[each.to_event() for each in lost],
    )
    for part in logged.texts:
        await run.show(part)
    run.has_shown_texts = True
    if run.is_suspended:
        raise RunSuspended
    for call in unknown:
        await run.commit(unknown_row(call))
    calls.repeat_postponed(logged.postponed)
    await calls.repeat(list(repeated.values()), len(logged.last_calls) - len(repeated))
    if logged.lost:
        await run.commit(logged.lost)
    loop.state.answered = logged.outcome
    run_end = run.coordinator.get_capability("context.run_end") if run.coordinator else None
    if loop.state.answered is not None and run_end is not None and await run_end() is not None:
        loop.state.is_recorded, run.inbox.is_open = True, False


@dataclass(slots=True)
class LoggedRun:
    """The last run of a conversation, derived from its rows.

    Args:
        earlier_rows: rows of earlier runs.
        rows: rows of the run, from the prompt on, without hook rows.
        lost: row to add for postponed calls whose results were lost.
        lost_calls: these calls.
        postponed: other postponed calls without a result, which are made again.
        iterations: number of the model's answers.
        turns: number of answers with tool calls.
        continuations: consecutive answers, up to now, that were truncated at the length limit.
        calls: all calls by id.
        last_calls: those of the last answer.
        unanswered: those of them without a result row, by id; none if another row follows them.
        completed: calls with a result, their outcome and label, in the order of their rows.
        deliveries: ids of the messages delivered by each row, and the number of the model call that reads them.
        texts: texts that the run has shown to people; `interim_texts` continues their numbering.
    """

    earlier_rows: Sequence[Row]
    rows: Sequence[Row]
    lost: Row | None
    lost_calls: Sequence[ToolCall]
    postponed: Sequence[ToolCall]
    iterations: int = 0
    turns: int = 0
    continuations: int = 0
    calls: dict[str, ToolCall] = field(default_factory=dict)
    last_calls: Sequence[ToolCall] = ()
    unanswered: dict[str, ToolCall] = field(default_factory=dict)
    completed: list[tuple[ToolCall, ToolOutcome, str | None]] = field(default_factory=list)
    deliveries: list[tuple[list[str], int]] = field(default_factory=list)
    texts: list[InterimText] = field(default_factory=list)
    interim_texts: InterimTexts = field(default_factory=InterimTexts)

    @property
    def prompt(self) -> str:
        return text_of(self.rows[0])

    def ends(self, tools: Mapping[str, Tool]) -> list[CompletedCall]:
        """Return its calls with their outcomes; the outcome of one without a result is unknown."""
        lost = (*self.unanswered.values(), *self.lost_calls)
        return [
            *(CompletedCall(call, label or _called(tools, call), end) for call, end, label in self.completed),
            *(CompletedCall(call, _called(tools, call), "lost") for call in lost),
        ]

    @property
    def outcome(self) -> RunOutcome | None:
        """The outcome of the run, if its last row is a final answer."""
        last = self.rows[-1]
        continues = last["role"] != "assistant" or call_ids(last) or partial_reason_of(last) in ("length", "urgent")
        if continues or self.lost:
            return None
        text = self.interim_texts.pending_text
        if partial_reason_of(last) == "stopped":
            return RunOutcome(text, "cancelled")
        match metadata_of(last).get("incomplete"):
            case {"reason": str(reason), "detail": str() | None as detail}:
                return RunOutcome(text, "incomplete", reason, detail)
        return RunOutcome(text, "success")

    def text_since(self, number: int) -> str:
        """Return the text for people from the part with this number on."""
        return "".join(part.text for part in self.texts if part.number >= number) + self.interim_texts.pending_text


def logged_run(rows: Sequence[Row], may_repeat: Callable[[ToolCall], bool] = lambda _: False) -> LoggedRun:
    """Return the state of the last run of a conversation; postponed calls are made again if `may_repeat` allows it.

    Raises:
        RuntimeError: there is no run.
    """
    rows = [row for row in rows if isinstance(row, dict) and isinstance(row.get("role"), str) and not is_of_hook(row)]
    begin = _last_prompt(rows)
    if begin is None:
        raise RuntimeError("There is no run to resume: this conversation has no prompt.")
    lost_calls: list[ToolCall] = []
    repeated: list[ToolCall] = []
    if unfinished := postponed_in(rows):
        calls = {call.id: call for row in rows if row["role"] == "assistant" for call in _calls(row)}
        repeated = [calls[call_id] for call_id in unfinished if call_id in calls and may_repeat(calls[call_id])]
        lost_calls = [calls[call_id] for call_id in unfinished if call_id in calls and calls[call_id] not in repeated]
    lost = lost_results_row(rows, [call.id for call in repeated])
    run = LoggedRun(rows[:begin], rows[begin:], lost, lost_calls, repeated)
    for row in run.rows:
        _add(run, row)
    return run


def _add(run: LoggedRun, row: Row) -> None:
    """Add one of its rows to the state of a run."""
    is_answer, partial, has_calls = row["role"] == "assistant", partial_reason_of(row), bool(call_ids(row))
    if is_answer:
        run.iterations += partial != "stopped"
        run.turns += has_calls
        run.last_calls = _calls(row)
        run.unanswered = {call.id: call for call in run.last_calls}
        run.calls |= run.unanswered
    elif row["role"] == "tool":
        run.unanswered.pop(str(row.get("tool_call_id")), None)
    else:
        run.unanswered = {}
    if is_answer and not has_calls and partial == "length":
        run.continuations += 1
    elif (is_answer and partial is None) or has_calls or "injections" in metadata_of(row):
        run.continuations = 0
    run.completed += [(run.calls[id_], outcome, label) for id_, outcome, label in results_in(row) if id_ in run.calls]
    if (ids := delivered_ids_in(row)) and not is_prompt(row):
        run.deliveries.append((ids, run.iterations + 1))
    if part := run.interim_texts.add(row):
        run.texts.append(part)


def _called(tools: Mapping[str, Tool], call: ToolCall) -> str | None:
    """Return the label of a call for people; `None`: its tool has none, or is not mounted."""
    tool = tools.get(call.name)
    return label_of(tool, call.arguments) if tool else None


def _last_prompt(rows: Sequence[Row]) -> int | None:
    return next((place for place in range(len(rows) - 1, -1, -1) if is_prompt(rows[place])), None)


def _calls(row: Row) -> list[ToolCall]:
    """Return the calls in an assistant row, in order."""
    try:
        message = message_of(row)
    except UNREADABLE:
        return []
    calls = [] if isinstance(message.content, str) else calls_of(message.content)
    inside = {call.id for call in calls}
    for call in calls_in_field(message):
        if is_call(call) and call["id"] not in inside:
            function = function_of(call)
            arguments = function.get("arguments")
            arguments = {} if arguments is None else arguments
            calls.append(ToolCall(id=call["id"], name=function["name"], arguments=arguments))
    return calls
