"""Check that each assistant row is followed by the results of all its tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Row = Mapping[str, Any]

_CALL_BLOCKS = ("tool_call", "tool_use")


def pair_problems(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each call without a result and each misplaced result."""
    waiting: list[str] = []
    for row in rows:
        results = result_ids(row)
        if not results and waiting:
            yield f"Between the call {waiting[0]} and its result is a row of the role '{row.get('role')}'."
            waiting = []
        for result in results:
            if result in waiting:
                waiting.remove(result)
            else:
                yield f"The result of {result} does not follow its call."
        waiting += call_ids(row)
    yield from (f"The call {call} has no result." for call in waiting)


def call_ids(row: Row) -> list[str]:
    """Return the ids of the calls in an assistant row, from its blocks and its field `tool_calls`."""
    beside = [_field(call, "id") for call in row.get("tool_calls") or ()]
    inside = [block.get("id") for block in _blocks(row) if block.get("type") in _CALL_BLOCKS]
    return [call for call in dict.fromkeys([*inside, *beside]) if call is not None]


def result_ids(row: Row) -> list[str]:
    """Return the call ids of the results in a row."""
    if row.get("role") == "tool" and row.get("tool_call_id"):
        return [row["tool_call_id"]]
    results = [block for block in _blocks(row) if block.get("type") == "tool_result"]
    return [block.get("tool_call_id") or block.get("tool_use_id") or "" for block in results]


def _blocks(row: Row) -> list[Mapping[str, Any]]:
    content = row.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
