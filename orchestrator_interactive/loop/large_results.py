"""Limit the size of tool results, and move large ones from the log to a file."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from operator import is_
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog

from orchestrator_interactive.json_limits import MAX_NESTING, bounded, expanded_size
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock
from orchestrator_interactive.kernel.contracts.models import ToolResult, sendable
from orchestrator_interactive.transcript.rows import truncate_middle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Save = Callable[[str, str], Awaitable[str]]

    class Hide(Protocol):
        """Remove known secrets from a text and, unless `known_only`, strings that look like tokens."""

        def __call__(self, text: str, *, known_only: bool = False) -> str: ...


T = TypeVar("T")

log = structlog.get_logger(__name__)

# The log keeps a result up to this size whole, and the beginning and the end of a larger one.
MAX_KEPT_CHARS = 5_000_000
# A larger result becomes a failed result.
MAX_CHARS = 50_000_000
# A larger result is processed in a thread.
_SMALL_CHARS = 200_000
# Size of the text processed in one step: each step holds the GIL.
_PIECE_CHARS = 1_000_000
_PIECE = re.compile(rf"(?s:.){{1,{_PIECE_CHARS}}}(?:(?<=\s)|\Z)|(?s:.){{1,{_PIECE_CHARS}}}")
_PARTS = 64
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)
_MARK_CHARS = 100
# One thread for all results: more threads would make the event loop wait longer for the GIL.
_WORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-results")


def size_of(result: ToolResult, most: int = MAX_CHARS) -> int:
    """Estimate the characters of a result without serializing it; stop counting past `most`."""
    return expanded_size(result.content or result.output or result.error, most)


def is_large(result: ToolResult) -> bool:
    """Return whether processing a result would block the event loop."""
    if type(result.output) is str and not result.content:
        return len(result.output) > _SMALL_CHARS
    return size_of(result, _SMALL_CHARS) > _SMALL_CHARS


def bounded_result(result: ToolResult) -> ToolResult:
    """Return the result with values that are nested too deeply replaced by placeholders."""
    if type(result.output) is str and not result.content and not result.error:
        return result
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
    """Return the result without values that are nested too deeply, or a failed result if it is too large."""
    return await _off_the_loop(_examined, result) if is_large(result) else bounded_result(result)


async def _off_the_loop(function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_WORKER, function, *arguments)


def _examined(result: ToolResult) -> ToolResult:
    size = size_of(result)
    if size <= MAX_CHARS:
        return bounded_result(result)
    found = f"{size:,}" if isinstance(result.output, str) else f"more than {MAX_CHARS:,}"
    message = (
        f"The tool ran, but its result is too large: it has {found} characters; the limit is {MAX_CHARS:,}. "
        "Request less: a part, a filter, or output to a file."
    )
    return ToolResult(success=False, error={"message": message})


async def moved_to_file(result: ToolResult, call_id: str, max_chars: int, save: Save | None, hide: Hide) -> ToolResult:
    """Save the text of a result that is too large for the log to a file, and name the file in the result.

    The model reads `max_chars` of the text. `save` takes a name and a text, and returns the path of the file; it
    raises ValueError with a sentence for the model. The result is returned as a copy without secrets.
    """
    result, text = await _off_the_loop(_read, result, hide)
    if len(text) <= MAX_KEPT_CHARS:
        return result
    note = f"[The result has {len(text):,} characters. {await _where_it_is(call_id, text, save)}]"
    shown = f"{truncate_middle(text, max(max_chars - len(note) - _MARK_CHARS, 0))}\n{note}"
    if not result.content:
        return result.model_copy(update={"output": shown})
    images = [block for block in result.content if not isinstance(block, TextBlock)]
    return result.model_copy(update={"content": [TextBlock(text=shown), *images]})


async def _where_it_is(call_id: str, text: str, save: Save | None) -> str:
    if save is None:
        return "Only this part is kept: there is no workspace for the rest."
    try:
        path = await save(call_id, text)
    except ValueError as e:
        return f"Only this part is kept: the rest cannot be saved in the workspace. {e}"
    return (
        f"The whole result is in the file {path}: read it with read_file (offset, limit) or search_files. The file "
        "breaks lines of more than 10,000 characters."
    )


def _read(result: ToolResult, hide: Hide) -> tuple[ToolResult, str]:
    """Return the result without secrets, and its whole text."""
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
    # A token has no white space, and each piece ends with one, so no token is split.
    return text if result.success else "".join(hide(piece[0]) for piece in _PIECE.finditer(text))


def _json_of(value: Any) -> Iterator[str]:
    """Serialize a value as JSON in pieces; serializing one piece holds the GIL."""
    match value:
        case dict():
            yield from ("{", *_json_items(value), "}")
        case list() | tuple():
            yield from ("[", *_json_items(value), "]")
        case _:
            yield _JSON.encode(value)


def _json_items(value: Any) -> Iterator[str]:
    """Serialize the items of an object or a list, without the brackets."""
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
    """Return the text of the output; blank if it cannot be serialized."""
    output = result.output
    try:
        if isinstance(output, dict | list):
            return "".join(_json_of(output))
        return output if isinstance(output, str) else result.get_serialized_output()
    except Exception:  # noqa: BLE001 - logged when the row is built
        return ""
