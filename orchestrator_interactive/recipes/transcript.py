"""Read the state of a recipe from the rows of its conversation: calls, results, and messages of people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.loop.tool_results import late_results_in, results_in
from orchestrator_interactive.transcript.framing import NOTICE_PREFIX, PREFIX, read_messages
from orchestrator_interactive.transcript.rows import call_ids, is_of_hook, is_prompt, metadata_of, talk_ids_in, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orchestrator_interactive.loop.tool_results import ToolOutcome


@dataclass(slots=True)
class RecipeCall:
    """A call of a step.

    Args:
        run: number of the run that made it.
        outcome: `None` while it runs.
        text: its result, whole.
        approval: the decision of people that the log has with the result.
    """

    run: int
    outcome: ToolOutcome | None = None
    text: str = ""
    approval: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Transcript:
    """The state of a recipe, which is the conversation.

    Args:
        runs: number of runs, the current one included.
        calls: all calls, by id.
        unread: messages of people that no agent has read.
        has_reported: the report was given, and nothing was called since.
    """

    runs: int = 0
    calls: dict[str, RecipeCall] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    has_reported: bool = False


def read_transcript(rows: Iterable[dict[str, Any]], is_of_agent: Callable[[str], bool]) -> Transcript:
    """Read the rows; `is_of_agent` returns whether the call with this id passes the messages of people to an agent."""
    state = Transcript()
    for row in rows:
        if is_of_hook(row):
            continue
        match row.get("role"):
            case "assistant":
                _read_answer(state, row, is_of_agent)
            case "tool" | "user":
                _read_results(state, row)
        if row.get("role") == "user":
            _read_message(state, row)
    return state


def _read_answer(state: Transcript, row: dict[str, Any], is_of_agent: Callable[[str], bool]) -> None:
    ids = call_ids(row)
    state.calls |= {call_id: RecipeCall(state.runs) for call_id in ids}
    state.has_reported = not ids and bool(text_of(row).strip())
    if state.has_reported or any(map(is_of_agent, ids)):
        state.unread.clear()


def _read_results(state: Transcript, row: dict[str, Any]) -> None:
    metadata = metadata_of(row)
    whole, late = metadata.get("whole"), metadata.get("results")
    texts = {each.call_id: each.text for each in late_results_in(text_of(row))} if late else {}
    for call_id, outcome, _ in results_in(row):
        if (call := state.calls.get(call_id)) is not None:
            kept = whole.get(call_id) if late and isinstance(whole, dict) else whole
            call.outcome = outcome
            call.text = text_of({"content": kept}) if kept else texts.get(call_id, "") if late else text_of(row)
            call.approval = metadata.get("approval") or {}


def _read_message(state: Transcript, row: dict[str, Any]) -> None:
    """Note the messages of a row. The first prompt is the order for the recipe; talk is not addressed to it."""
    if is_prompt(row):
        state.runs += 1
        if state.runs == 1:
            return
    text = text_of(row)
    metadata = metadata_of(row)
    if "results" in metadata or (talk_ids_in(row) and "talk" in metadata):
        return
    named = [f"{each.name}: {each.text}" for each in read_messages(text) if each.text.strip()]
    plain = text.removeprefix(PREFIX).removeprefix(NOTICE_PREFIX).strip().removeprefix("- ")
    state.unread += named or ([plain] if plain else [])
