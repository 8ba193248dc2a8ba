"""Tool results that are too large to be kept whole in the log."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from orchestrator_interactive.kernel.messages import TextBlock
from orchestrator_interactive.kernel.models import ToolResult
from orchestrator_interactive.rows import abridged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Save = Callable[[str, str], Awaitable[str]]

# Of one result, kept in the log. Of a larger one, the log keeps the beginning and the end.
MOST_KEPT_CHARS = 5_000_000
# Of one result; a larger one is a failed result.
MOST_CHARS = 50_000_000
# A smaller result needs no thread.
_SMALL_CHARS = 200_000
# Deeper data cannot be written as JSON anyway.
_DEEPEST = 1_000
_PLAIN_VALUE_CHARS = 8
_MARK_CHARS = 100
_END = object()
# One thread for all: each piece of this work holds the interpreter for up to some 0.1 s.
_WORKER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-results")


def size_of(result: ToolResult, most: int = MOST_CHARS) -> int:
    """Estimate the characters of a result without writing it as text; stop counting past `most`."""
    size = 0
    stack: list[Iterator[Any]] = [iter((result.content or result.output or result.error,))]
    while stack and size <= most:
        value = next(stack[-1], _END)
        match value:
            case _ if value is _END:
                stack.pop()
                continue
            case str() | bytes() | bytearray():
                size += len(value)
            case dict():
                stack.append(chain.from_iterable(value.items()))
            case list() | tuple() | set() | frozenset():
                stack.append(iter(value))
            case BaseModel():
                stack.append(iter(vars(value).values()))
            case _:
                size += _PLAIN_VALUE_CHARS
        size += 1
        if len(stack) > _DEEPEST:
            break
    return size


async def refused_if_huge(result: ToolResult) -> ToolResult:
    """Return the result, or a failed one in its place if it is too large to be worked with."""
    size = size_of(result, _SMALL_CHARS)
    if size > _SMALL_CHARS:
        size = await asyncio.get_running_loop().run_in_executor(_WORKER, size_of, result)
    if size <= MOST_CHARS:
        return result
    told = f"{size:,}" if isinstance(result.output, str) else f"more than {MOST_CHARS:,}"
    message = (
        f"The tool ran, but its result is too large to be read: {told} characters, and {MOST_CHARS:,} is the most. "
        "Ask it for less: a part, a filter, or a file of its own."
    )
    return ToolResult(success=False, error={"message": message})


async def moved_to_file(result: ToolResult, call_id: str, most_chars: int, save: Save | None) -> ToolResult:
    """Save the text of a result that is too large for the log in a file, and say in the result where it is.

    The model reads `most_chars` of it. `save` writes a file of this name and text, and returns its path; it raises
    ValueError with a sentence.
    """
    if size_of(result, _SMALL_CHARS) <= _SMALL_CHARS:
        return result
    result = await refused_if_huge(result)
    text = await asyncio.get_running_loop().run_in_executor(_WORKER, _text_of, result)
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


def _text_of(result: ToolResult) -> str:
    """Return the text of a result, or nothing if it has none."""
    if result.content:
        return "\n".join(block.text for block in result.content if isinstance(block, TextBlock))
    try:
        return result.get_serialized_output()
    except Exception:  # noqa: BLE001 - logged where the row is written
        return ""
