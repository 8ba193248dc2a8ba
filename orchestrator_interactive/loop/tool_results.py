"""Tool results: their sentences, their limits of size, and their rows in the log.

A result that is too large for the log goes to a file. Large results are processed in a thread.
"""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import is_not
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

import structlog

from orchestrator_interactive.json_limits import MAX_NESTING, bounded, expanded_size
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.contracts.models import ToolResult, sendable
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.loop.outcome import usage_in
from orchestrator_interactive.transcript.framing import LATE_PREFIX, indented, listed, without_frames
from orchestrator_interactive.transcript.rows import marked, metadata_of, text_of, tool_row, truncate_middle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ToolCall

    Row = dict[str, Any]
    Block = dict[str, Any]
    Save = Callable[[str, str], Awaitable[str]]

log = structlog.get_logger(__name__)

T = TypeVar("T")

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

# The log keeps a result up to this size whole, and the beginning and the end of a larger one.
MAX_KEPT_CHARS = 5_000_000
# A larger result becomes a failed result.
MAX_CHARS = 50_000_000
# A larger result is processed in a thread.
_SMALL_CHARS = 200_000
# Size of the text processed in one step: each step holds the GIL.
_PIECE_CHARS = 1_000_000
_PIECE = re.compile(rf"(?s:.){{1,{_PIECE_CHARS}}}(?:(?<=\s)|\Z)|(?s:.){{1,{_PIECE_CHARS}}}")
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)
_MARK_CHARS = 100
_LATE = re.compile(r"call (\S+), ([^:]+): ?(failed: )?(.*)", re.DOTALL)
# One thread for all results: more threads would make the event loop wait longer for the GIL.
_WORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-results")

# finished, failed: the result is known. cancelled: no effect. unknown: may have taken effect. lost: unknown because its
# process ended; the run's next owner reports it.
ToolOutcome = Literal["finished", "failed", "cancelled", "unknown", "lost"]
_OUTCOMES: tuple[ToolOutcome, ...] = get_args(ToolOutcome)


class SecretFilter(Protocol):
    """The capability `secrets.filter`: replaces known secrets in a text and, unless `known_only`, likely ones."""

    def __call__(self, text: str, *, known_only: bool = False) -> str: ...


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A call and its outcome, for the summary of a run.

    Args:
        was_dropped: it began early, but no answer contains it.
        approval: how it was allowed or denied; `None`: nothing decided about it, or an earlier process reported it.
    """

    call: ToolCall
    label: str | None
    outcome: ToolOutcome
    was_dropped: bool = False
    approval: dict[str, Any] | None = None

    def to_event(self) -> dict[str, Any]:
        """Return the form in progress events."""
        outcome = "unknown" if self.outcome == "lost" else self.outcome
        more = {} if self.approval is None else {"approval": self.approval}
        return {"tool": self.call.name, "id": self.call.id, "label": self.label, "outcome": outcome, **more}

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


# Rows


def result_row(call: ToolCall, result: ToolResult, max_chars: int, hide: Callable[[str], str] = str) -> Row:
    """Return the row of a result.

    A result longer than `max_chars` is truncated; the metadata keep it whole, up to `MAX_KEPT_CHARS`. Lines that look
    like frames (see `framing`) are indented. `hide` removes secrets.
    """
    content, failed = _serialized(result)
    if isinstance(content, str):
        content = hide(content)
        shown: str | list[Block] = without_frames(
            content if len(content) <= max_chars else truncate_middle(content, max_chars)
        )
    else:
        content = _without_large_images([{**b, "text": hide(b["text"])} if "text" in b else b for b in content])
        shown = content
        if sum(len(block.get("text", "")) for block in content) > max_chars:
            text = "\n".join(block["text"] for block in content if block.get("type") == "text")
            others = [block for block in content if block.get("type") != "text"]
            shown = [{"type": "text", "text": truncate_middle(text, max_chars)}, *others]
        shown = [{**block, "text": without_frames(block["text"])} if "text" in block else block for block in shown]
    row = tool_row(call, shown, failed=failed)
    if shown != content and len(text_of(row | {"content": content})) <= MAX_KEPT_CHARS:
        row["metadata"] = {**row.get("metadata", {}), "whole": content}
    return row


def _serialized(result: ToolResult) -> tuple[str | list[Block], bool]:
    """Return the content of a result for the model, and whether it is a failure."""
    if result.content:
        return [block.model_dump(exclude_none=True) for block in result.content], not result.success
    if isinstance(result.output, str) and (text := sendable(result.output)):
        return text, not result.success
    with ErrorBoundary(log, "tool.output_unreadable") as boundary:
        return result.get_serialized_output(), not result.success
    return f"The tool's output cannot be serialized: {type(boundary.error).__name__}.", True


def _without_large_images(content: list[Block]) -> list[Block]:
    """Replace the images of a result by a note if they are too large for the log."""
    images = [block for block in content if block.get("type") != "text"]
    size = sum(len(str(value)) for image in images for value in image.get("source", {}).values())
    if size <= MAX_KEPT_CHARS:
        return content
    note = f"[{len(images)} images are left out: they have {size:,} characters; the limit is {MAX_KEPT_CHARS:,}.]"
    return [*(block for block in content if block.get("type") == "text"), {"type": "text", "text": note}]


def with_outcome(row: Row, outcome: ToolOutcome, label: str | None = None) -> Row:
    """Record the outcome of a call in its result's row, unless the row implies it.

    `label` is the call's label for people, if hooks changed its arguments.
    """
    if label is not None:
        return marked(row, call_outcome={"outcome": outcome, "label": sendable(label)})
    implied = "failed" if "metadata" in row and row["metadata"].get("is_error") else "finished"
    return row if outcome == implied else marked(row, call_outcome={"outcome": outcome})


def results_in(row: Row) -> list[tuple[str, ToolOutcome, str | None]]:
    """Return the calls whose results are in a row: id, outcome and label."""
    metadata = metadata_of(row)
    if row["role"] == "tool":
        return [] if metadata.get("pending") is True else [(str(row.get("tool_call_id")), *_recorded(metadata))]
    ids, outcomes = metadata.get("results"), metadata.get("call_outcome")
    if not isinstance(ids, list):
        return []
    outcomes = outcomes if isinstance(outcomes, dict) else {}
    return [(str(each), *_recorded({"call_outcome": outcomes.get(str(each))})) for each in ids]


def _recorded(metadata: dict[str, Any]) -> tuple[ToolOutcome, str | None]:
    match metadata.get("call_outcome"):
        case {"outcome": outcome, **more} if outcome in _OUTCOMES:
            return outcome, label if isinstance(label := more.get("label"), str) else None
    return "failed" if metadata.get("is_error") else "finished", None


def still_running_row(call: ToolCall) -> Row:
    return marked(tool_row(call, STILL_RUNNING), pending=True)


def unknown_row(call: ToolCall) -> Row:
    """Return the row of a call that was running when its process ended."""
    return with_outcome(tool_row(call, PROCESS_ENDED, failed=True), "lost")


def late_results_row(rows: Sequence[Row]) -> Row:
    """Return one user row for the results of postponed calls; `rows` are their tool rows.

    Their text is indented, so that none of its lines can imitate a person's message.
    """
    contents = [row["content"] for row in rows]
    blocks = [[{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents]
    texts = []
    for row, row_blocks in zip(rows, blocks, strict=True):
        text = "\n".join(block["text"] for block in row_blocks if block.get("type") == "text")
        failed = "failed: " if metadata_of(row).get("is_error") else ""
        texts.append(indented(f"call {row['tool_call_id']}, {row.get('name')}: {failed}{text}"))  # untrusted
    text = f"{LATE_PREFIX}\n{listed(texts)}"
    images = [block for row_blocks in blocks for block in row_blocks if block.get("type") == "image"]
    outcomes = {}
    for row in rows:
        outcome, label = _recorded(metadata_of(row))
        outcomes[row["tool_call_id"]] = {"outcome": outcome, **({} if label is None else {"label": label})}
    late: Row = {"role": "user", "content": [{"type": "text", "text": text}, *images] if images else text}
    late["metadata"] = {"results": list(outcomes), "call_outcome": outcomes}
    if whole := {row["tool_call_id"]: row["metadata"]["whole"] for row in rows if "whole" in row.get("metadata", {})}:
        late["metadata"]["whole"] = whole
    if any("usage" in metadata_of(row) for row in rows):
        late["metadata"]["usage"] = usage_in(rows).to_dict()
    return late


@dataclass(frozen=True, slots=True)
class LateResult:
    """An entry of the row of late results, as the model reads it."""

    call_id: str
    tool: str
    text: str
    failed: bool


def late_results_in(text: str) -> list[LateResult]:
    """Read the text of a row that `late_results_row` made; empty for other texts."""
    if not text.startswith(LATE_PREFIX):
        return []
    entries = re.split(r"\n- ", text.removeprefix(LATE_PREFIX).strip("\n").removeprefix("- "))
    found = (_LATE.fullmatch(entry.replace("\n  ", "\n")) for entry in entries)
    return [LateResult(entry[1], entry[2], entry[4], bool(entry[3])) for entry in found if entry]


def lost_results_row(rows: Iterable[Row], repeated: Collection[str] = ()) -> Row | None:
    """Return the row for postponed calls whose process ended before their results; None if there are none.

    `repeated` are the ids of calls that are made again.
    """
    pending = {call_id: row for call_id, row in _unfinished(rows).items() if call_id not in repeated}
    lost = [
        with_outcome({**row, "content": PROCESS_ENDED, "metadata": {"is_error": True}}, "lost")
        for row in pending.values()
    ]
    return late_results_row(lost) if lost else None


def postponed_in(rows: Iterable[Row]) -> list[str]:
    """Return the ids of the postponed calls without a result."""
    return list(_unfinished(rows))


def _unfinished(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the rows of postponed calls without a result, by the calls' ids."""
    pending: dict[str, Row] = {}
    for row in rows:
        metadata = metadata_of(row)
        if metadata.get("pending") is True and isinstance(call_id := row.get("tool_call_id"), str):
            pending[call_id] = row
        ids = metadata.get("results")
        for call_id in ids if isinstance(ids, list) else ():
            pending.pop(str(call_id), None)
    return pending


# Limits


def size_of(result: ToolResult, most: int = MAX_CHARS) -> int:
    """Estimate the characters of a result without serializing it; stop counting past `most`."""
    return expanded_size(result.content or result.output or result.error, most)


def is_large(result: ToolResult) -> bool:
    """Return whether processing a result would block the event loop."""
    if type(result.output) is str and not result.content:
        return len(result.output) > _SMALL_CHARS
    return size_of(result, _SMALL_CHARS) > _SMALL_CHARS


async def _off_the_loop(function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_WORKER, function, *arguments)


async def examined(result: ToolResult) -> ToolResult:
    """Return the result without values that are nested too deeply, or a failed result if it is too large."""
    if not is_large(result):
        return _bounded_result(result)
    size = await _off_the_loop(size_of, result)
    if size <= MAX_CHARS:
        return await _off_the_loop(_bounded_result, result)
    found = f"{size:,}" if isinstance(result.output, str) else f"more than {MAX_CHARS:,}"
    return failure(
        f"The tool ran, but its result is too large: it has {found} characters; the limit is {MAX_CHARS:,}. "
        "Request less: a part, a filter, or output to a file."
    )


def _bounded_result(result: ToolResult) -> ToolResult:
    """Return the result with values that are nested too deeply replaced by placeholders."""
    if type(result.output) is str and not result.content and not result.error:
        return result
    parts = (("output", result.output), ("error", result.error))
    cut: dict[str, Any] = {name: kept for name, part in parts if (kept := bounded(part)) is not part}
    content = [
        block
        if isinstance(block, TextBlock) or (source := bounded(block.source)) is block.source
        else block.model_copy(update={"source": source})
        for block in result.content or ()
    ]
    if any(map(is_not, content, result.content or ())):
        cut["content"] = content
    if not cut:
        return result
    log.warning("tool.result_nested_too_deeply", most=MAX_NESTING)
    return result.model_copy(update=cut)


async def moved_to_file(
    result: ToolResult, call_id: str, max_chars: int, save: Save | None, hide: SecretFilter
) -> ToolResult:
    """Save the text of a result that is too large for the log to a file, and name the file in the result.

    The model reads `max_chars` of the text. `save` takes a name and a text, and returns the path of the file; it
    raises ValueError with a sentence for the model. The result is returned as a copy without secrets.
    """
    result, text = await _off_the_loop(_read, result, hide)
    if len(text) <= MAX_KEPT_CHARS:
        return result
    if save is None:
        where = "Only this part is kept: there is no workspace for the rest."
    else:
        try:
            where = (
                f"The whole result is in the file {await save(call_id, text)}: read it with read_file (offset, limit) "
                "or search_files. The file breaks lines of more than 10,000 characters."
            )
        except ValueError as e:
            where = f"Only this part is kept: the rest cannot be saved in the workspace. {e}"
    note = f"[The result has {len(text):,} characters. {where}]"
    shown = f"{truncate_middle(text, max(max_chars - len(note) - _MARK_CHARS, 0))}\n{note}"
    if not result.content:
        return result.model_copy(update={"output": shown})
    images = [block for block in result.content if not isinstance(block, TextBlock)]
    return result.model_copy(update={"content": [TextBlock(text=shown), *images]})


def _read(result: ToolResult, hide: SecretFilter) -> tuple[ToolResult, str]:
    """Return the result without secrets, and its whole text."""

    def readable(text: str) -> str:
        starts = range(0, len(text), _PIECE_CHARS)
        text = hide("".join(sendable(text[start : start + _PIECE_CHARS]) for start in starts), known_only=True)
        # A token has no white space, and each piece ends with one, so no token is split.
        return text if result.success else "".join(hide(piece[0]) for piece in _PIECE.finditer(text))

    if result.content:
        blocks = [
            block.model_copy(update={"text": readable(block.text)}) if isinstance(block, TextBlock) else block
            for block in result.content
        ]
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        return result.model_copy(update={"content": blocks}), "\n".join(texts)
    text = readable(_text_of(result))
    return result.model_copy(update={"output": text or result.output}), text


def _text_of(result: ToolResult) -> str:
    """Return the text of the output; blank if it cannot be serialized."""
    output = result.output
    try:
        if isinstance(output, dict | list):
            # In pieces: `encode` would hold the GIL until its end.
            return "".join(_JSON.iterencode(output))
        return output if isinstance(output, str) else result.get_serialized_output()
    except Exception:  # noqa: BLE001 - logged when the row is built
        return ""
