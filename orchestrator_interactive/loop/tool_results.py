"""The outcome of a tool call, and its rows in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import structlog

from orchestrator_interactive.kernel.contracts.models import ToolResult, sendable
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.loop.large_results import MAX_KEPT_CHARS
from orchestrator_interactive.loop.run import changed
from orchestrator_interactive.transcript.framing import LATE_PREFIX, indented, listed, without_frames
from orchestrator_interactive.transcript.rows import marked, metadata_of, text_of, tool_row, truncate_middle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ToolCall
    from orchestrator_interactive.kernel.contracts.models import HookResult

log = structlog.get_logger(__name__)

_CHECK_FIRST = "It may have taken effect: check before you repeat it."

NOT_STARTED = "Not started: the run was stopped before this call. It had no effect; repeat it if you still need it."
UNCHECKED = (
    f"The call ended, but the run was stopped before its result was checked, so the result is withheld. {_CHECK_FIRST}"
)
UNKNOWN_OUTCOME = f"Cancelled while it was running: its outcome is unknown. {_CHECK_FIRST}"
PROCESS_ENDED = f"The process ended while this call was running: its outcome is unknown. {_CHECK_FIRST}"
TIMED_OUT = f"Cancelled after {{timeout_s:g}} seconds, before it ended: its outcome is unknown. {_CHECK_FIRST}"
TOO_MANY = (
    "Not started: one answer may make at most {most} tool calls, and this one made more. If you still need this call, "
    "repeat it in your next answer."
)
STILL_RUNNING = "Still running. A later message has the result; do not repeat the call."

Block = dict[str, Any]
# finished, failed: the result is known. cancelled: no effect. unknown: may have taken effect. lost: unknown because its
# process ended; the run's next owner reports it.
ToolOutcome = Literal["finished", "failed", "cancelled", "unknown", "lost"]
_OUTCOMES: tuple[ToolOutcome, ...] = get_args(ToolOutcome)


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A call and its outcome, for the summary of a run. `was_dropped`: it began early, but no answer contains it."""

    call: ToolCall
    label: str | None
    outcome: ToolOutcome
    was_dropped: bool = False

    @property
    def name(self) -> str:
        """The name for people."""
        return self.label or self.call.name

    def to_event(self) -> dict[str, Any]:
        """Return the form in progress events."""
        outcome = "unknown" if self.outcome == "lost" else self.outcome
        return {"tool": self.call.name, "id": self.call.id, "label": self.label, "outcome": outcome}

    def is_same_as(self, other: CompletedCall) -> bool:
        """Return whether both have the same id, or the same tool and arguments."""
        mine, others = self.call, other.call
        return mine.id == others.id or (mine.name, mine.arguments) == (others.name, others.arguments)


def failure(message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message})


def as_result(returned: Any) -> ToolResult:
    """Return a `ToolResult`; any other value becomes its output."""
    result = to_local(returned)
    return result if isinstance(result, ToolResult) else ToolResult(output=result)


def changed_result(hook_result: HookResult, result: ToolResult) -> ToolResult:
    """Return the result as the hooks modified it; a text or other data in its place becomes its output."""
    if not hook_result.data:
        return result
    value = (hook_result.data or {}).get("tool_result")
    if isinstance(value, str) or (isinstance(value, dict) and not value.keys() <= ToolResult.model_fields.keys()):
        return result.model_copy(update={"output": value})
    return changed(hook_result, "tool_result", result)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call; `label` is its label for people, if hooks changed its arguments."""

    outcome: ToolOutcome
    label: str | None = None

    def mark(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the result's row with this outcome in its metadata, unless the row implies it."""
        is_implied = self.outcome in ("finished", "failed") and _outcome_in_row(row) == self
        return row if is_implied else marked(row, call_outcome=self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"outcome": self.outcome, **({} if self.label is None else {"label": sendable(self.label)})}


def results_in(row: dict[str, Any]) -> list[tuple[str, CallOutcome]]:
    """Return the ids and outcomes of the calls whose results are in a row."""
    metadata = metadata_of(row)
    if row["role"] == "tool":
        return [] if metadata.get("pending") is True else [(str(row.get("tool_call_id")), _outcome_in_row(row))]
    ids, call_outcome = metadata.get("results"), metadata.get("call_outcome")
    if not isinstance(ids, list):
        return []
    outcomes = call_outcome if isinstance(call_outcome, dict) else {}
    return [(str(each), _from_dict(outcomes.get(str(each))) or CallOutcome("finished")) for each in ids]


def _outcome_in_row(row: dict[str, Any]) -> CallOutcome:
    """Return the outcome of the call whose result is this row."""
    metadata = metadata_of(row)
    recorded = _from_dict(metadata.get("call_outcome"))
    return recorded or CallOutcome("failed" if metadata.get("is_error") else "finished")


def _from_dict(data: Any) -> CallOutcome | None:
    match data:
        case {"outcome": outcome, **more} if outcome in _OUTCOMES:
            label = more.get("label")
            return CallOutcome(outcome, label if isinstance(label, str) else None)
    return None


def result_row(call: ToolCall, result: ToolResult, max_chars: int, hide: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the row of a result.

    A result longer than `max_chars` is truncated; the metadata keep it whole, up to `MAX_KEPT_CHARS`. Lines that look
    like frames (see `framing`) are indented. `hide` removes secrets.
    """
    content, failed = _serialized(result)
    if isinstance(content, str):
        content = hide(content)
    else:
        content = [{**block, "text": hide(block["text"])} if "text" in block else block for block in content]
    content = _without_large_images(content)
    shown = _capped(content, max_chars)
    row = tool_row(call, shown, failed=failed)
    if shown != content and len(text_of(row | {"content": content})) <= MAX_KEPT_CHARS:
        row["metadata"] = {**row.get("metadata", {}), "whole": content}
    return row


def still_running_row(call: ToolCall) -> dict[str, Any]:
    return marked(tool_row(call, STILL_RUNNING), pending=True)


def unknown_row(call: ToolCall) -> dict[str, Any]:
    """Return the row of a call that was running when its process ended."""
    return CallOutcome("lost").mark(tool_row(call, PROCESS_ENDED, failed=True))


def late_results_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one user row for the results of postponed calls; `rows` are their tool rows.

    Their text is indented, so that none of its lines can imitate a person's message.
    """
    text = f"{LATE_PREFIX}\n{listed([_late_text(row) for row in rows])}"
    images = [block for row in rows for block in _blocks(row) if block.get("type") == "image"]
    late: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": text}, *images] if images else text}
    call_outcome = {row["tool_call_id"]: _outcome_in_row(row).to_dict() for row in rows}
    late["metadata"] = {"results": [row["tool_call_id"] for row in rows], "call_outcome": call_outcome}
    if whole := {row["tool_call_id"]: row["metadata"]["whole"] for row in rows if "whole" in row.get("metadata", {})}:
        late["metadata"]["whole"] = whole
    return late


def lost_results_row(rows: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row for postponed calls whose process ended before their results; None if there are none."""
    pending: dict[str, dict[str, Any]] = {}
    for row in rows:
        metadata = metadata_of(row)
        if metadata.get("pending") is True and isinstance(call_id := row.get("tool_call_id"), str):
            pending[call_id] = CallOutcome("lost").mark(
                {**row, "content": PROCESS_ENDED, "metadata": {"is_error": True}}
            )
        ids = metadata.get("results")
        for call_id in ids if isinstance(ids, list) else ():
            pending.pop(str(call_id), None)
    return late_results_row(list(pending.values())) if pending else None


def _late_text(row: dict[str, Any]) -> str:
    text = "\n".join(block["text"] for block in _blocks(row) if block.get("type") == "text")
    failed = "failed: " if metadata_of(row).get("is_error") else ""
    return indented(f"call {row['tool_call_id']}, {row.get('name')}: {failed}{text}")  # id and name are untrusted


def _blocks(row: dict[str, Any]) -> list[Block]:
    content = row["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _serialized(result: ToolResult) -> tuple[str | list[Block], bool]:
    """Return the content of a result for the model, and whether it is a failure."""
    if result.content:
        return [block.model_dump(exclude_none=True) for block in result.content], not result.success
    with ErrorBoundary(log, "tool.output_unreadable") as boundary:
        return result.get_serialized_output(), not result.success
    return f"The tool's output cannot be serialized: {type(boundary.error).__name__}.", True


def _without_large_images(content: str | list[Block]) -> str | list[Block]:
    """Replace the images of a result by a note if they are too large for the log."""
    if isinstance(content, str):
        return content
    texts = [block for block in content if block.get("type") == "text"]
    images = [block for block in content if block.get("type") != "text"]
    size = sum(len(str(value)) for image in images for value in image.get("source", {}).values())
    if size <= MAX_KEPT_CHARS:
        return content
    note = f"[{len(images)} images are left out: they have {size:,} characters; the limit is {MAX_KEPT_CHARS:,}.]"
    return [*texts, {"type": "text", "text": note}]


def _capped(content: str | list[Block], max_chars: int) -> str | list[Block]:
    if isinstance(content, str):
        return without_frames(truncate_middle(content, max_chars))
    if sum(len(block.get("text", "")) for block in content) > max_chars:
        text = "\n".join(block["text"] for block in content if block.get("type") == "text")
        others = [block for block in content if block.get("type") != "text"]
        content = [{"type": "text", "text": truncate_middle(text, max_chars)}, *others]
    return [{**block, "text": without_frames(block["text"])} if "text" in block else block for block in content]
