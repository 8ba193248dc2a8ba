"""What came of a tool call, and how it is written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import structlog

from orchestrator_interactive.kernel.contracts.models import ToolResult, sendable
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.loop.large_results import MOST_KEPT_CHARS, bounded_result, is_large
from orchestrator_interactive.loop.run import changed
from orchestrator_interactive.transcript.framing import LATE_PREFIX, indented, listed, without_frames
from orchestrator_interactive.transcript.rows import abridged, marked, metadata_of, text_of, tool_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ToolCall
    from orchestrator_interactive.kernel.contracts.models import HookResult

log = structlog.get_logger(__name__)

NOT_STARTED = "Not started: the run was stopped before this call."
UNCHECKED = "It ended; the run was stopped before its result had been checked, so the result is not shown."
UNKNOWN_OUTCOME = "Cancelled while it was running: its outcome is unknown."
PROCESS_ENDED = "The process ended while this call was at work: its outcome is unknown."
TIMED_OUT = "It had not finished after {timeout_s:g} seconds and was cancelled: its outcome is unknown."
TOO_MANY = (
    "Not started: one answer may make at most {most} tool calls, and this one made more. Make the call again in your "
    "next answer if you still need it, or do with fewer."
)
STILL_RUNNING = "Still at work; its result will follow."

Block = dict[str, Any]
# Finished and failed are known results; cancelled did nothing; unknown may have done anything. So may lost: its process
# ended, and whoever goes on with the run is told.
ToolOutcome = Literal["finished", "failed", "cancelled", "unknown", "lost"]
_OUTCOMES: tuple[ToolOutcome, ...] = get_args(ToolOutcome)
# What rows tell in which an earlier version has written down nothing beside their text.
_SAID: Mapping[str, ToolOutcome] = {NOT_STARTED: "cancelled", UNKNOWN_OUTCOME: "unknown", PROCESS_ENDED: "lost"}


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """How one call ended: for the people who stop a run. `was_dropped`: no answer asked for it after all."""

    call: ToolCall
    label: str | None
    outcome: ToolOutcome
    was_dropped: bool = False

    @property
    def name(self) -> str:
        """What people call it."""
        return self.label or self.call.name

    def told(self) -> dict[str, Any]:
        """As progress tells of it."""
        outcome = "unknown" if self.outcome == "lost" else self.outcome
        return {"tool": self.call.name, "id": self.call.id, "label": self.label, "outcome": outcome}

    def is_same_as(self, other: CompletedCall) -> bool:
        """Whether a model means the same by both."""
        mine, others = self.call, other.call
        return mine.id == others.id or (mine.name, mine.arguments) == (others.name, others.arguments)


def failure(message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message})


def as_result(returned: Any) -> ToolResult:
    """A `ToolResult`; anything else that a tool returns is its output. A large one is not bounded yet."""
    result = to_local(returned)
    return _bounded(result if isinstance(result, ToolResult) else ToolResult(output=result))


def _bounded(result: ToolResult) -> ToolResult:
    return result if is_large(result) else bounded_result(result)


def changed_result(wish: HookResult, result: ToolResult) -> ToolResult:
    """What the hooks made of a result; a text or other data in its place is its output."""
    value = (wish.data or {}).get("tool_result")
    if isinstance(value, str) or (isinstance(value, dict) and not value.keys() <= ToolResult.model_fields.keys()):
        return _bounded(result.model_copy(update={"output": value}))
    return _bounded(changed(wish, "tool_result", result))


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What became of a call; `label` is what people call it, where its arguments do not tell that."""

    outcome: ToolOutcome
    label: str | None = None

    def beside(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row of its result, with what nobody would take from that as it is."""
        goes_without_saying = self.outcome in ("finished", "failed") and _became(row) == self
        return row if goes_without_saying else marked(row, became=self.written())

    def written(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {"outcome": self.outcome, **({} if self.label is None else {"label": sendable(self.label)})}


def results_in(row: dict[str, Any]) -> list[tuple[str, CallOutcome]]:
    """What became of the calls whose results stand in a row, with their ids."""
    metadata = metadata_of(row)
    if row["role"] == "tool":
        return [] if metadata.get("pending") is True else [(str(row.get("tool_call_id")), _became(row))]
    ids, became = metadata.get("results"), metadata.get("became")
    if not isinstance(ids, list):
        return []
    if not isinstance(became, dict):  # of an earlier version; those of a process that ended had a row of their own
        return [(str(each), CallOutcome("lost" if PROCESS_ENDED in text_of(row) else "finished")) for each in ids]
    return [(str(each), _read(became.get(str(each))) or CallOutcome("finished")) for each in ids]


def _became(row: dict[str, Any]) -> CallOutcome:
    """What became of the call whose result is in this row."""
    metadata, content = metadata_of(row), row.get("content")
    if told := _read(metadata.get("became")):
        return told
    if not metadata.get("is_error"):
        return CallOutcome("finished")
    return CallOutcome(_SAID.get(content, "failed") if isinstance(content, str) else "failed")


def _read(told: Any) -> CallOutcome | None:
    match told:
        case {"outcome": outcome, **more} if outcome in _OUTCOMES:
            label = more.get("label")
            return CallOutcome(outcome, label if isinstance(label, str) else None)
    return None


def result_row(call: ToolCall, result: ToolResult, most_chars: int, hide: Callable[[str], str] = str) -> dict[str, Any]:
    """The row of a result. One that is larger than `most_chars` is shortened there; its metadata keep the whole.

    Of more than `MOST_KEPT_CHARS`, only the shortened form is kept. Its lines that look like our frames are indented.
    `hide` takes secrets out of its texts.
    """
    content, failed = _written_down(result)
    if isinstance(content, str):
        content = hide(content)
    else:
        content = [{**block, "text": hide(block["text"])} if "text" in block else block for block in content]
    content = _without_large_images(content)
    shown = _capped(content, most_chars)
    row = tool_row(call, shown, failed=failed)
    if shown != content and len(text_of(row | {"content": content})) <= MOST_KEPT_CHARS:
        row["metadata"] = {**row.get("metadata", {}), "whole": content}
    return row


def still_running_row(call: ToolCall) -> dict[str, Any]:
    return marked(tool_row(call, STILL_RUNNING), pending=True)


def unknown_row(call: ToolCall) -> dict[str, Any]:
    """The row of a call that was at work when its process ended."""
    return CallOutcome("lost").beside(tool_row(call, PROCESS_ENDED, failed=True))


def late_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The one user row for results that could not stand behind their calls any more; `rows` are theirs.

    Their text is indented, so that no line of it can pass for a person's.
    """
    text = f"{LATE_PREFIX}\n{listed([_told(row) for row in rows])}"
    images = [block for row in rows for block in _blocks(row) if block.get("type") == "image"]
    late: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": text}, *images] if images else text}
    became = {row["tool_call_id"]: _became(row).written() for row in rows}
    late["metadata"] = {"results": [row["tool_call_id"] for row in rows], "became": became}
    if whole := {row["tool_call_id"]: row["metadata"]["whole"] for row in rows if "whole" in row.get("metadata", {})}:
        late["metadata"]["whole"] = whole
    return late


def lost_row(rows: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The row for calls that were at work when their process ended, and now never tell; `None`: there are none."""
    pending: dict[str, dict[str, Any]] = {}
    for row in rows:
        metadata = metadata_of(row)
        if metadata.get("pending") is True and isinstance(call_id := row.get("tool_call_id"), str):
            pending[call_id] = CallOutcome("lost").beside(
                {**row, "content": PROCESS_ENDED, "metadata": {"is_error": True}}
            )
        told = metadata.get("results")
        for call_id in told if isinstance(told, list) else ():
            pending.pop(str(call_id), None)
    return late_row(list(pending.values())) if pending else None


def _told(row: dict[str, Any]) -> str:
    text = "\n".join(block["text"] for block in _blocks(row) if block.get("type") == "text")
    failed = "failed: " if metadata_of(row).get("is_error") else ""
    return indented(f"call {row['tool_call_id']}, {row.get('name')}: {failed}{text}")  # id and name are the model's


def _blocks(row: dict[str, Any]) -> list[Block]:
    content = row["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _written_down(result: ToolResult) -> tuple[str | list[Block], bool]:
    """What the model reads of a result, and whether it is a failure."""
    if result.content:
        return [block.model_dump(exclude_none=True) for block in result.content], not result.success
    try:
        return result.get_serialized_output(), not result.success
    except Exception as e:  # an output of a tool's own kind may not take the run down
        log.exception("tool.output_unreadable")
        return f"The tool's output cannot be written down: {type(e).__name__}.", True


def _without_large_images(content: str | list[Block]) -> str | list[Block]:
    """Replace the images of a result by a sentence if they are too large to be kept."""
    if isinstance(content, str):
        return content
    texts = [block for block in content if block.get("type") == "text"]
    images = [block for block in content if block.get("type") != "text"]
    size = sum(len(str(value)) for image in images for value in image.get("source", {}).values())
    if size <= MOST_KEPT_CHARS:
        return content
    said = f"[{len(images)} images are left out: they have {size:,} characters, and {MOST_KEPT_CHARS:,} is the most.]"
    return [*texts, {"type": "text", "text": said}]


def _capped(content: str | list[Block], most_chars: int) -> str | list[Block]:
    if isinstance(content, str):
        return without_frames(abridged(content, most_chars))
    if sum(len(block.get("text", "")) for block in content) > most_chars:
        text = "\n".join(block["text"] for block in content if block.get("type") == "text")
        others = [block for block in content if block.get("type") != "text"]
        content = [{"type": "text", "text": abridged(text, most_chars)}, *others]
    return [{**block, "text": without_frames(block["text"])} if "text" in block else block for block in content]
