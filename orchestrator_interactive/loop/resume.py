"""Where a run stands, read from the rows of its conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.tool_calls import calls_beside, is_call, named
from orchestrator_interactive.loop.outcome import outcome_in
from orchestrator_interactive.loop.tool_call import is_harmless, label_of
from orchestrator_interactive.loop.tool_results import CompletedCall, lost_row, results_in
from orchestrator_interactive.loop.usage import spent_in
from orchestrator_interactive.transcript.answer_parts import InterimTexts, cut_of
from orchestrator_interactive.transcript.parsing import UNREADABLE, message_of
from orchestrator_interactive.transcript.rows import call_ids, delivered_in, is_of_hook, is_prompt, metadata_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import Tool
    from orchestrator_interactive.loop.outcome import RunOutcome
    from orchestrator_interactive.loop.usage import UsageTotals
    from orchestrator_interactive.transcript.answer_parts import InterimText

    Row = dict[str, Any]

_NO_RUN = "There is no run to go on with here: nobody has asked anything in this conversation."


@dataclass(frozen=True, slots=True)
class ResumeState:
    """What the rows of the last run say of it.

    Args:
        prompt: its text.
        before: what the runs before it used up.
        spent: what it has used up itself.
        told: the texts of it that people were to read by then.
        parts: goes on counting them.
        rows: its own, beginning with the prompt's; those of hooks are none of them.
        lost: the row to add for calls whose results were to follow later, and now do not.
        lost_calls: those calls.
    """

    prompt: str
    before: UsageTotals
    spent: UsageTotals
    told: tuple[InterimText, ...]
    parts: InterimTexts
    rows: Sequence[Row]
    lost: Row | None
    lost_calls: Sequence[ToolCall]

    @property
    def _answers(self) -> list[Row]:
        return [row for row in self.rows if row["role"] == "assistant"]

    @property
    def iterations(self) -> int:
        """How often the model has answered."""
        return sum(cut_of(row) != "stopped" for row in self._answers)

    @property
    def turns(self) -> int:
        """How often it has called tools."""
        return sum(bool(call_ids(row)) for row in self._answers)

    @property
    def continuations(self) -> int:
        """How often in a row its answer was cut at its length, up to now."""
        count = 0
        for row in self.rows:
            is_answer = row["role"] == "assistant" and not call_ids(row)
            if is_answer and cut_of(row) == "length":
                count += 1
            elif (is_answer and cut_of(row) is None) or call_ids(row) or "injections" in metadata_of(row):
                count = 0
        return count

    @property
    def last_tools(self) -> frozenset[str]:
        """The names of the tools that its last answer calls with arguments that can be used."""
        calls = _calls(self._answers[-1]) if self._answers else []
        return frozenset(call.name for call in calls if problem_of(call.arguments) is None)

    @property
    def last_calls(self) -> int:
        """The number of calls that its last answer makes."""
        return len(_calls(self._answers[-1])) if self._answers else 0

    @property
    def deliveries(self) -> list[tuple[list[str], int]]:
        """The messages that each of its rows holds, with the model call that reads them."""
        deliveries, answers = [], 0
        for row in self.rows:
            answers += row["role"] == "assistant"
            if (ids := delivered_in(row)) and not is_prompt(row):
                deliveries.append((ids, answers + 1))
        return deliveries

    @property
    def outcome(self) -> RunOutcome | None:
        """How it ended, where its last row is an answer that says so."""
        last = self.rows[-1]
        goes_on = last["role"] != "assistant" or call_ids(last) or cut_of(last) in ("length", "urgent")
        return None if goes_on or self.lost else outcome_in(last, self.parts.unshown)

    def settled(self, tools: Mapping[str, Tool]) -> list[CompletedCall]:
        """What became of the calls whose results its rows have, in the order of these."""
        made = {call.id: call for row in self._answers for call in _calls(row)}
        ends = [(made[call_id], became) for row in self.rows for call_id, became in results_in(row) if call_id in made]
        return [CompletedCall(call, became.label or _label(call, tools), became.outcome) for call, became in ends]

    def late(self, tools: Mapping[str, Tool]) -> list[CompletedCall]:
        """The calls whose results were to follow later, and now do not."""
        return [CompletedCall(call, _label(call, tools), "lost") for call in self.lost_calls]

    def unanswered(self, tools: Mapping[str, Tool]) -> tuple[list[CompletedCall], list[CompletedCall]]:
        """The calls without a result: those to make again (harmless, or never started), and the others."""
        again: list[CompletedCall] = []
        others: list[CompletedCall] = []
        for call in self._unanswered():
            is_harmless_again = problem_of(call.arguments) is not None or is_harmless(tools.get(call.name))
            kind = again if is_harmless_again else others
            kind.append(CompletedCall(call, _label(call, tools), "lost"))
        return again, others

    def _unanswered(self) -> list[ToolCall]:
        """The calls of the last answer that have no row yet, unless something else has come after them."""
        answered: set[str] = set()
        for row in reversed(self.rows):
            if row["role"] == "assistant":
                return [call for call in _calls(row) if call.id not in answered]
            if row["role"] != "tool":
                break
            answered.add(str(row.get("tool_call_id")))
        return []


def standing_of(rows: Sequence[Row]) -> ResumeState:
    """Where the last run of a conversation stands.

    Raises:
        RuntimeError: there is none.
    """
    rows = [row for row in rows if isinstance(row, dict) and isinstance(row.get("role"), str) and not is_of_hook(row)]
    begin = _last_prompt(rows)
    if begin is None:
        raise RuntimeError(_NO_RUN)
    own, parts = rows[begin:], InterimTexts()
    told = tuple(part for row in own if (part := parts.add(row)))
    lost = lost_row(rows)
    return ResumeState(
        prompt=text_of(own[0]),
        before=spent_in(rows[:begin]),
        spent=spent_in(own),
        told=told,
        parts=parts,
        rows=own,
        lost=lost,
        lost_calls=_calls_with(rows, metadata_of(lost)["results"]) if lost else (),
    )


def said_since(rows: Sequence[Row], number: int) -> str:
    """What the last run of a conversation has said from the part with this number on.

    Raises:
        RuntimeError: there is none.
    """
    standing = standing_of(rows)
    return "".join(part.text for part in standing.told if part.number >= number) + standing.parts.unshown


def prompt_in(rows: Sequence[Row]) -> str:
    """What the last run of a conversation was asked; blank where there is none."""
    begin = _last_prompt(rows)
    return "" if begin is None else text_of(rows[begin])


def _last_prompt(rows: Sequence[Row]) -> int | None:
    return next((place for place in range(len(rows) - 1, -1, -1) if is_prompt(rows[place])), None)


def _label(call: ToolCall, tools: Mapping[str, Tool]) -> str | None:
    tool = tools.get(call.name)
    return label_of(tool, call.arguments) if tool else None


def _calls_with(rows: Iterable[Row], ids: Iterable[str]) -> list[ToolCall]:
    """The calls with these ids, wherever they were made."""
    made = {call.id: call for row in rows if row["role"] == "assistant" for call in _calls(row)}
    return [made[call_id] for call_id in ids if call_id in made]


def _calls(row: Row) -> list[ToolCall]:
    """The calls in an assistant row, in order."""
    try:
        message = message_of(row)
    except UNREADABLE:
        return []
    blocks = [] if isinstance(message.content, str) else message.content
    calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
    inside = {call.id for call in calls}
    return calls + [_beside(call) for call in calls_beside(message) if is_call(call) and call["id"] not in inside]


def _beside(call: dict[str, Any]) -> ToolCall:
    arguments = named(call).get("arguments")
    return ToolCall(id=call["id"], name=named(call)["name"], arguments={} if arguments is None else arguments)
