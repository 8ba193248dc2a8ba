"""Rows and requests, as tests read them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from orchestrator_interactive.kernel import ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse

Row = dict[str, Any]
Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]
OnRow = Callable[[Row], Awaitable[None]]


def text_of(row: Row) -> str:
    content = row.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def told(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return [(row["role"], text_of(row)) for row in rows]


def faults(rows: Iterable[Row]) -> list[str]:
    """Tool calls and results that are not paired, one right after the other."""
    found: list[str] = []
    waiting: list[str] = []
    for row in rows:
        if row["role"] == "tool":
            if row["tool_call_id"] in waiting:
                waiting.remove(row["tool_call_id"])
            else:
                found.append(f"result without a call: {row['tool_call_id']}")
            continue
        found += [f"call without a result: {call_id}" for call_id in waiting]
        waiting = _call_ids(row) if row["role"] == "assistant" else []
    return found + [f"call without a result: {call_id}" for call_id in waiting]


def _call_ids(row: Row) -> list[str]:
    content = row.get("content")
    blocks = content if isinstance(content, list) else []
    ids = [block["id"] for block in blocks if block["type"] == "tool_call"]
    return ids + [c["id"] for c in row.get("tool_calls") or () if c["id"] not in ids]
