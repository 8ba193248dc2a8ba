"""Conversations for contexts: one with all forms of rows, and one that exceeds any small budget."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.validation.tool_pairs import call_ids, result_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Row = dict[str, Any]

SYSTEM = "You are careful. [row-system]"
_MARK = re.compile(r"\[row-(\w+)\]")
_TURNS = 24
_ABSENT = object()
_FILLER = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 6


def calls(*named: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `tool_calls` of an assistant row for (id, tool, input) tuples."""
    return [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(given)}}
        for call_id, tool, given in named
    ]


def rich_rows() -> list[Row]:
    """Return a conversation with calls, signed thinking, metadata, and content of every form."""
    return copy.deepcopy(
        [
            {"role": "user", "content": "Read both files.", "metadata": {"injections": ["m-1"], "nested": {"a": [1]}}},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Two files, two calls.", "signature": "c2lnbmF0dXJl=="},
                    {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
                    {"type": "text", "text": "I read them. ✓"},
                    {"type": "tool_call", "id": "call_1", "name": "read_file", "input": {"path": "a"}},
                    {"type": "tool_call", "id": "call_2", "name": "read_file", "input": {"path": "b"}},
                ],
                "tool_calls": calls(("call_1", "read_file", {"path": "a"}), ("call_2", "read_file", {"path": "b"})),
            },
            {"role": "tool", "tool_call_id": "call_1", "name": "read_file", "content": "Hello"},
            {
                "role": "tool",
                "tool_call_id": "call_2",
                "name": "read_file",
                "content": "There is no file b.",
                "metadata": {"is_error": True},
            },
            {"role": "assistant", "content": None, "tool_calls": calls(("call_3", "list_files", {}))},
            {"role": "tool", "tool_call_id": "call_3", "content": ""},
            {"role": "assistant", "content": "There is only a."},
        ]
    )


def long_rows() -> list[Row]:
    """Return a system row, then turns of a prompt, one to three parallel calls, their results, and an answer.

    About 100 rows and 12,000 tokens. Each row contains a mark that identifies it in a view.
    """
    rows: list[Row] = [{"role": "system", "content": SYSTEM}]
    for turn in range(_TURNS):
        named = [(f"call_{turn}_{number}", "read_file", {"path": f"{number}"}) for number in range(turn % 3 + 1)]
        rows.append({"role": "user", "content": f"Question {turn}. {_FILLER}"})
        rows.append({"role": "assistant", "content": f"Looking {turn}.", "tool_calls": calls(*named)})
        rows += [
            {"role": "tool", "tool_call_id": call_id, "name": tool, "content": f"Found. {_FILLER}"}
            for call_id, tool, _ in named
        ]
        rows.append({"role": "assistant", "content": f"Answer {turn}. {_FILLER}"})
    return [rows[0], *(_marked(row, number) for number, row in enumerate(rows[1:], start=1))]


def _marked(row: Row, number: int) -> Row:
    return {**row, "content": f"{row['content']} [row-{number}]"}


def marks(rows: Sequence[Row]) -> list[str]:
    """Return the marks of the rows, in order; rows with several marks are skipped."""
    found = [_MARK.findall(json.dumps(row.get("content"), default=str)) for row in rows]
    return [each[0] for each in found if len(each) == 1]


def size(rows: Sequence[Row]) -> int:
    """Return the size of rows in characters of JSON."""
    return sum(len(json.dumps(row, default=str, ensure_ascii=False)) for row in rows)


def is_as_added(row: Row, back: Row) -> bool:
    """Return whether all fields of a row came back unchanged; additional fields are allowed."""
    return not any(changes(row, back))


def changes(row: Row, back: Row) -> Iterator[str]:
    """Yield descriptions of the changed fields of a row."""
    for name, value in row.items():
        got = back.get(name)
        if name == "metadata" and isinstance(got, dict):
            yield from (f"other metadata: {key}" for key, kept in value.items() if got.get(key, _ABSENT) != kept)
        elif name not in back or got != value:
            yield f"another '{name}': {got!r} instead of {value!r}"


def additions(row: Row, back: Row) -> Iterator[str]:
    """Yield the names of added fields."""
    yield from (name for name in back if name not in row and name != "metadata")
    yield from (f"metadata.{name}" for name in back.get("metadata") or () if name not in (row.get("metadata") or ()))


def call_free_ends(rows: Sequence[Row]) -> Iterator[tuple[Row, bool]]:
    """Yield each row and whether a model call may follow it: no call lacks its result."""
    waiting: set[str] = set()
    for row in rows:
        waiting.update(call_ids(row))
        waiting.difference_update(result_ids(row))
        yield row, not waiting
