"""Tool results that are too large to be kept whole in the log."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from operator import is_
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog

from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock
from orchestrator_interactive.kernel.contracts.models import ToolResult, sendable
from orchestrator_interactive.outside_json import MAX_NESTING, bounded, expanded_size
from orchestrator_interactive.transcript.rows import abridged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Save = Callable[[str, str], Awaitable[str]]

    class Hide(Protocol):
        """Take secrets out of a text: those that are known, and what looks like a token."""

        def __call__(self, text: str, *, known_only: bool = False) -> str: ...


T = TypeVar("T")

log = structlog.get_logger(__name__)

# Of one result, kept in the log. Of a larger one, the log keeps the beginning and the end.
MOST_KEPT_CHARS = 5_000_000
# Of one result; a larger one is a failed result.
MOST_CHARS = 50_000_000
# A smaller result needs no thread.
_SMALL_CHARS = 200_000
# Of a text, worked on in one step: each step holds the interpreter.
_PIECE_CHARS = 1_000_000
_PIECE = re.compile(rf"(?s:.){{1,{_PIECE_CHARS}}}(?:(?<=\s)|\Z)|(?s:.){{1,{_PIECE_CHARS}}}")
_PARTS = 64
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)
_MARK_CHARS = 100
# One thread for all: the more threads work on results, the longer the event loop waits for the interpreter.
_WORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-results")


def size_of(result: ToolResult, most: int = MOST_CHARS) -> int:
    """Estimate the characters of a result without writing it as text; stop counting past `most`."""
    return expanded_size(result.content or result.output or result.error, most)


def is_large(result: ToolResult) -> bool:
    """Return whether work on a result would hold the event loop up."""
    return size_of(result, _SMALL_CHARS) > _SMALL_CHARS


def bounded_result(result: ToolResult) -> ToolResult:
    """Return the result with marks in the place of what is nested too deeply."""
    parts = {"output": result.output, "error": result.error}
    cut = {name: bounded(part) for name, part in parts.items()}
    if result.content:
        cut["content"] = [_bounded_block(block) for block in result.content]
        parts["content"] = result.content
        if all(map(is_, cut["content"], result.content)):
            cut["content"] = result.content
    if all(cut[name] is part for name, part in parts.items()):
        return result
    log.warning("tool.result_nested_too_deeply", most=MAX_NESTING)
    return result.model_copy(update=cut)


def _bounded_block(block: TextBlock | ImageBlock) -> TextBlock | ImageBlock:
    if isinstance(block, TextBlock) or (source := bounded(block.source)) is block.source:
        return block
    return block.model_copy(update={"source": source})


async def examined(result: ToolResult) -> ToolResult:
    """Return the result without what is nested too deeply, or a failed one if it is too large to be worked with."""
    return await _off_the_loop(_examined, result) if is_large(result) else bounded_result(result)


async def _off_the_loop(work: Callable[..., T], *given: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_WORKER, work, *given)


def _examined(result: ToolResult) -> ToolResult:
    size = size_of(result)
    if size <= MOST_CHARS:
        return bounded_result(result)
    told = f"{size:,}" if isinstance(result.output, str) else f"more than {MOST_CHARS:,}"
    message = (
        f"The tool ran, but its result is too large to be read: {told} characters, and {MOST_CHARS:,} is the most. "
        "Ask it for less: a part, a filter, or a file of its own."
    )
    return ToolResult(success=False, error={"message": message})


async def moved_to_file(result: ToolResult, call_id: str, most_chars: int, save: Save | None, hide: Hide) -> ToolResult:
    """Save the text of a result that is too large for the log in a file, and say in the result where it is.

    The model reads `most_chars` of it. `save` writes a file of this name and text, and returns its path; it raises
    ValueError with a sentence. A large result is returned as another one, whose texts are without secrets.
    """
    if not is_large(result):
        return result
    result, text = await _off_the_loop(_read, result, hide)
    if len(text) <= MOST_KEPT_CHARS:
        return result
    note = f"[The result has {len(text):,} characters. {await _where_it_is(call_id, text, save)}]"
    shown = f"{abridged(text, max(most_chars - len(note) - _MARK_CHARS, 0))}\n{note}"
    if not result.content:
        return result.model_copy(update={"output": shown})
    images = [block for block in result.content if not isinstance(block, TextBlock)]
    return result.model_copy(update={"content": [TextBlock(text=shown), *images]})


async def _where_it_is(call_id: str, text: str, save: Save | None) -> str:
    if save is None:
        return "Only this much of it is kept, for there is no workspace for the rest."
    try:
        path = await save(call_id, text)
    except ValueError as e:
        return f"Only this much of it is kept, for the rest cannot be saved in the workspace. {e}"
    return (
        f"All of it is in the file {path}: read on there with read_file (offset, limit) or search_files. Lines of more "
        "than 10,000 characters are broken there."
    )


def _read(result: ToolResult, hide: Hide) -> tuple[ToolResult, str]:
    """Return the result with its texts as the model may read them, and all of its text."""
    if result.content:
        blocks = [
            block.model_copy(update={"text": _readable(block.text, result, hide)})
            if isinstance(block, TextBlock)
            else block
            for block in result.content
        ]
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        return result.model_copy(update={"content": blocks}), "\n".join(texts)
    text = _readable(_text_of(result), result, hide)
    return result.model_copy(update={"output": text or result.output}), text


def _readable(text: str, result: ToolResult, hide: Hide) -> str:
    starts = range(0, len(text), _PIECE_CHARS)
    text = hide("".join(sendable(text[start : start + _PIECE_CHARS]) for start in starts), known_only=True)
    # What looks like a token has no spaces, and the pieces end behind one.
    return text if result.success else "".join(hide(piece[0]) for piece in _PIECE.finditer(text))


def _json_of(value: Any) -> Iterator[str]:
    """Write a value as JSON in pieces. Writing one piece holds the interpreter."""
    match value:
        case dict():
            yield from ("{", *_json_items(value), "}")
        case list() | tuple():
            yield from ("[", *_json_items(value), "]")
        case _:
            yield _JSON.encode(value)


def _json_items(value: Any) -> Iterator[str]:
    """Write what is in an object or a list, without the brackets."""
    items = list(value.items()) if isinstance(value, dict) else value
    if expanded_size(value, _PIECE_CHARS) <= _PIECE_CHARS:
        yield _JSON.encode(value)[1:-1]
    elif len(items) > 1:
        step = -(-len(items) // _PARTS)
        for start in range(0, len(items), step):
            part = items[start : start + step]
            yield from (", " if start else "", *_json_items(dict(part) if isinstance(value, dict) else part))
    elif isinstance(value, dict):
        [(key, inner)] = items
        yield _JSON.encode({key: 0})[1:-2]
        yield from _json_of(inner)
    else:
        yield from _json_of(items[0])


def _text_of(result: ToolResult) -> str:
    """Return the text of an output, or nothing if it has none."""
    output = result.output
    try:
        if isinstance(output, dict | list):
            return "".join(_json_of(output))
        return output if isinstance(output, str) else result.get_serialized_output()
    except Exception:  # noqa: BLE001 - logged where the row is written
        return ""
