"""Conversations with the demo provider: rows, tools of a small workspace, and its next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Message, TextBlock, ToolCallBlock
from orchestrator_interactive.loop.injection_queue import Injection, injection_row
from orchestrator_interactive.modules.provider_demo.tour import next_step

Row = dict[str, Any]


TOOLS = ("list_files", "read_file", "search_files", "write_file", "todo")
FILES = {
    "a.md": "# A\n- [ ] bake a cake\n- launch on 3 May\n",
    "b.md": "The launch is on 4 May.\nWho pays?\n",
    "p.png": "\x89PNG",
}


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def steer(*texts: str) -> Row:
    return injection_row([Injection(text) for text in texts])


def said(text: str) -> Row:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def messages(rows: Sequence[Row]) -> list[Message]:
    return [Message.model_validate(row) for row in rows]


def next_of(rows: Sequence[Row], tools: Sequence[str] = TOOLS) -> list[ContentBlock]:
    return next_step(messages(rows), tools).blocks


def text_of(blocks: Sequence[ContentBlock]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def calls_of(blocks: Sequence[ContentBlock]) -> list[tuple[str, dict[str, Any]]]:
    return [(block.name, block.input) for block in blocks if isinstance(block, ToolCallBlock)]


def names_of(blocks: Sequence[ContentBlock]) -> list[str]:
    return [name for name, _ in calls_of(blocks)]


def outcome(name: str, given: dict[str, Any], files: dict[str, str]) -> tuple[str, bool]:
    """Return the output of a tool of the small workspace, and whether the call failed."""
    match name:
        case "list_files":
            return "\n".join(f"{path} ({len(text)} bytes)" for path, text in files.items()), False
        case "read_file":
            path = given["path"]
            return (files[path], False) if path in files else (f"There is no '{path}'.", True)
        case "search_files":
            lines = [
                f"{path}:{number}: {line}"
                for path, text in files.items()
                for number, line in enumerate(text.splitlines(), 1)
                if given["query"].lower() in line.lower()
            ]
            return "\n".join(lines) or f"No line contains “{given['query']}”.", False
        case _:
            return "Done.", False


def after(rows: Sequence[Row], tools: Sequence[str] = TOOLS, files: dict[str, str] = FILES) -> list[Row]:
    """The rows after one more turn, with the results of its calls."""
    blocks = next_of(rows, tools)
    turn: list[Row] = [{"role": "assistant", "content": [block.model_dump() for block in blocks]}]
    for block in blocks:
        if isinstance(block, ToolCallBlock):
            text, failed = outcome(block.name, block.input, files)
            row = {"role": "tool", "tool_call_id": block.id, "name": block.name, "content": text}
            turn.append({**row, "metadata": {"is_error": True}} if failed else row)
    return [*rows, *turn]


def answered(rows: Sequence[Row], tools: Sequence[str] = TOOLS) -> list[Row]:
    """The rows after all turns up to the answer."""
    rows = list(rows)
    for _ in range(20):
        rows = after(rows, tools)
        if rows[-1]["role"] == "assistant":
            return rows
    raise AssertionError("The demo does not end.")


def answer_to(*rows: Row, tools: Sequence[str] = TOOLS) -> str:
    return "".join(block.get("text", "") for block in answered(rows, tools)[-1]["content"])


def used_in(rows: Sequence[Row]) -> list[tuple[str, Any]]:
    blocks = [
        block
        for row in rows
        if row["role"] == "assistant" and isinstance(row["content"], list)
        for block in row["content"]
    ]
    return [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_call"]
