"""Resume a run from the rows of its conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in_field, function_of, is_call
from orchestrator_interactive.loop.outcome import outcome_in
from orchestrator_interactive.loop.run import RunSuspended
from orchestrator_interactive.loop.tool_call import is_side_effect_free, label_of
from orchestrator_interactive.loop.tool_results import CompletedCall, lost_results_row, results_in, unknown_row
from orchestrator_interactive.loop.usage import usage_in
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
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import Tool
    from orchestrator_interactive.loop.loop import Loop
    from orchestrator_interactive.loop.outcome import RunOutcome
    from orchestrator_interactive.loop.usage import UsageTotals
    from orchestrator_interactive.transcript.answer_parts import InterimText

    Row = dict[str, Any]

_NO_RUN = "There is no run to resume: this conversation has no prompt."


async def resume_run(loop: Loop) -> None:
    """Announce a run, and resume it from its log: emit its texts again, and settle its unanswered tool calls.

    Calls of tools marked `side_effect_free` are repeated; the others get the result "outcome unknown". The `resumed`
    event lists all calls of the run with an unknown outcome, also those of earlier takeovers. Hook injections of
    `execution:start` are added after the missing tool results.

    Raises:
        RuntimeError: the conversation has no run.
    """
    run = loop.run
    prompt = prompt_in(await run.context.get_messages())
    hook_result = await run.emit(events.EXECUTION_START, {"prompt": prompt, "resumed": True})
    rows = await run.context.get_messages()  # hooks may have changed them
    state = resume_state_of(rows)
    loop.session_state.usage = state.earlier_usage
    run.usage, run.iterations, run.interim_texts = state.usage, state.iterations, state.interim_texts
    for ids, iteration in state.deliveries:
        loop.receipts.deliver(ids, iteration)
    await run.progress("executing", prompt=state.prompt, run=run.id)
    await loop.remove_delivered(rows)
    await _settle_calls(loop, state)
    loop.session_state.knows_log = True
    await run.await_hooks(run.route(hook_result, events.EXECUTION_START), events.EXECUTION_START)


async def _settle_calls(loop: Loop, state: ResumeState) -> None:
    run, calls, tools = loop.run, loop.calls, loop.run.tools
    loop.state.turns, loop.state.continuations = state.turns, state.continuations
    loop.state.must_answer = not state.last_tools.isdisjoint(loop.options.force_respond_tools)
    repeated, unknown = state.unanswered(tools)
    calls.add_completed([*state.completed(tools), *unknown, *state.late(tools)])
    lost = calls.lost
    retried = [each.name for each in repeated if problem_of(each.call.arguments) is None]
    names = {"unknown": [each.name for each in lost], "retried": retried}
    await run.progress("resumed", **names, tools=[each.to_event() for each in lost])
    for part in state.texts:
        await run.show(part)
    if run.is_suspended:
        raise RunSuspended
    for each in unknown:
        await run.commit(unknown_row(each.call))
    await calls.repeat([each.call for each in repeated], state.last_calls - len(repeated))
    if state.lost:
        await run.commit(state.lost)
    loop.state.answered = state.outcome


@dataclass(frozen=True, slots=True)
class ResumeState:
    """The last run of a conversation, derived from its rows.

    Args:
        prompt: text of the prompt.
        earlier_usage: usage of all earlier runs.
        usage: usage of this run.
        texts: texts that the run has shown to people.
        interim_texts: continues their numbering.
        rows: rows of the run, from the prompt on, without hook rows.
        lost: row to add for postponed calls whose results were lost.
        lost_calls: these calls.
    """

    prompt: str
    earlier_usage: UsageTotals
    usage: UsageTotals
    texts: tuple[InterimText, ...]
    interim_texts: InterimTexts
    rows: Sequence[Row]
    lost: Row | None
    lost_calls: Sequence[ToolCall]

    @property
    def _answers(self) -> list[Row]:
        return [row for row in self.rows if row["role"] == "assistant"]

    @property
    def iterations(self) -> int:
        """The number of the model's answers."""
        return sum(partial_reason_of(row) != "stopped" for row in self._answers)

    @property
    def turns(self) -> int:
        """The number of answers with tool calls."""
        return sum(bool(call_ids(row)) for row in self._answers)

    @property
    def continuations(self) -> int:
        """The number of consecutive answers, up to now, that were truncated at the length limit."""
        count = 0
        for row in self.rows:
            is_answer = row["role"] == "assistant" and not call_ids(row)
            if is_answer and partial_reason_of(row) == "length":
                count += 1
            elif (is_answer and partial_reason_of(row) is None) or call_ids(row) or "injections" in metadata_of(row):
                count = 0
        return count

    @property
    def last_tools(self) -> frozenset[str]:
        """The names of the tools that the last answer calls with valid arguments."""
        calls = _calls(self._answers[-1]) if self._answers else []
        return frozenset(call.name for call in calls if problem_of(call.arguments) is None)

    @property
    def last_calls(self) -> int:
        """The number of calls in the last answer."""
        return len(_calls(self._answers[-1])) if self._answers else 0

    @property
    def deliveries(self) -> list[tuple[list[str], int]]:
        """The ids of the messages delivered by each row, with the number of the model call that reads them."""
        deliveries, answers = [], 0
        for row in self.rows:
            answers += row["role"] == "assistant"
            if (ids := delivered_ids_in(row)) and not is_prompt(row):
                deliveries.append((ids, answers + 1))
        return deliveries

    @property
    def outcome(self) -> RunOutcome | None:
        """The outcome of the run, if its last row is a final answer."""
        last = self.rows[-1]
        continues = last["role"] != "assistant" or call_ids(last) or partial_reason_of(last) in ("length", "urgent")
        return None if continues or self.lost else outcome_in(last, self.interim_texts.pending_text)

    def completed(self, tools: Mapping[str, Tool]) -> list[CompletedCall]:
        """Return the calls with a result, in the order of their rows."""
        made = {call.id: call for row in self._answers for call in _calls(row)}
        ends = [
            (made[call_id], outcome) for row in self.rows for call_id, outcome in results_in(row) if call_id in made
        ]
        return [CompletedCall(call, outcome.label or _label(call, tools), outcome.outcome) for call, outcome in ends]

    def late(self, tools: Mapping[str, Tool]) -> list[CompletedCall]:
        """Return the postponed calls whose results were lost."""
        return [CompletedCall(call, _label(call, tools), "lost") for call in self.lost_calls]

    def unanswered(self, tools: Mapping[str, Tool]) -> tuple[list[CompletedCall], list[CompletedCall]]:
        """Return the calls without a result: those to repeat (side-effect free or never started), and the others."""
        again: list[CompletedCall] = []
        others: list[CompletedCall] = []
        for call in self._unanswered():
            is_harmless_again = problem_of(call.arguments) is not None or is_side_effect_free(tools.get(call.name))
            kind = again if is_harmless_again else others
            kind.append(CompletedCall(call, _label(call, tools), "lost"))
        return again, others

    def _unanswered(self) -> list[ToolCall]:
        """Return the calls of the last answer without a result row; none if another row follows them."""
        answered: set[str] = set()
        for row in reversed(self.rows):
            if row["role"] == "assistant":
                return [call for call in _calls(row) if call.id not in answered]
            if row["role"] != "tool":
                break
            answered.add(str(row.get("tool_call_id")))
        return []


def resume_state_of(rows: Sequence[Row]) -> ResumeState:
    """Return the state of the last run of a conversation.

    Raises:
        RuntimeError: there is no run.
    """
    rows = [row for row in rows if isinstance(row, dict) and isinstance(row.get("role"), str) and not is_of_hook(row)]
    begin = _last_prompt(rows)
    if begin is None:
        raise RuntimeError(_NO_RUN)
    own, parts = rows[begin:], InterimTexts()
    texts = tuple(part for row in own if (part := parts.add(row)))
    lost = lost_results_row(rows)
    return ResumeState(
        prompt=text_of(own[0]),
        earlier_usage=usage_in(rows[:begin]),
        usage=usage_in(own),
        texts=texts,
        interim_texts=parts,
        rows=own,
        lost=lost,
        lost_calls=_calls_with(rows, metadata_of(lost)["results"]) if lost else (),
    )


def text_since(rows: Sequence[Row], number: int) -> str:
    """Return the text of the last run of a conversation, from the part with this number on.

    Raises:
        RuntimeError: there is no run.
    """
    state = resume_state_of(rows)
    return "".join(part.text for part in state.texts if part.number >= number) + state.interim_texts.pending_text


def prompt_in(rows: Sequence[Row]) -> str:
    """Return the prompt of the last run of a conversation; blank if there is none."""
    begin = _last_prompt(rows)
    return "" if begin is None else text_of(rows[begin])


def _last_prompt(rows: Sequence[Row]) -> int | None:
    return next((place for place in range(len(rows) - 1, -1, -1) if is_prompt(rows[place])), None)


def _label(call: ToolCall, tools: Mapping[str, Tool]) -> str | None:
    tool = tools.get(call.name)
    return label_of(tool, call.arguments) if tool else None


def _calls_with(rows: Iterable[Row], ids: Iterable[str]) -> list[ToolCall]:
    """Return the calls with these ids, in any assistant row."""
    made = {call.id: call for row in rows if row["role"] == "assistant" for call in _calls(row)}
    return [made[call_id] for call_id in ids if call_id in made]


def _calls(row: Row) -> list[ToolCall]:
    """Return the calls in an assistant row, in order."""
    try:
        message = message_of(row)
    except UNREADABLE:
        return []
    blocks = [] if isinstance(message.content, str) else message.content
    calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
    inside = {call.id for call in calls}
    return calls + [_beside(call) for call in calls_in_field(message) if is_call(call) and call["id"] not in inside]


def _beside(call: dict[str, Any]) -> ToolCall:
    arguments = function_of(call).get("arguments")
    return ToolCall(id=call["id"], name=function_of(call)["name"], arguments={} if arguments is None else arguments)
