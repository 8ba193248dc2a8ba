"""Rows of conversations, and contexts mounted in a session to put them in."""

from __future__ import annotations

from typing import Any

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, Message
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from orchestrator_interactive.loop.injection_queue import Injection, Talk, injection_row, notice_row, talk_row
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.transcript.rows import estimate

Row = dict[str, Any]

LEFT_OUT = "left out here …]"


def a_coordinator() -> ModuleCoordinator:
    return AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator


async def a_context(*rows: Row, **config: Any) -> context_simple.SimpleContext:
    context = await context_simple.mount(a_coordinator(), config)
    await context.set_messages(rows)
    return context


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def steer(text: str, message_id: str = "m1") -> Row:
    return injection_row([Injection(text, id=message_id)])


def notice(text: str) -> Row:
    return notice_row([text])


def talk(text: str) -> Row:
    return talk_row(Talk(((text, f"Ben (U0BEN), 2026-01-01 12:00 UTC: {text}"),)))


def from_hook(text: str, role: str = "system") -> Row:
    provenance = {"source": "hook", "hook_name": "watcher", "event": "tool:post"}
    return {"role": role, "content": text, "metadata": provenance}


def said(text: str, *before: dict[str, Any]) -> Row:
    return {"role": "assistant", "content": [*before, {"type": "text", "text": text}]}


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": f"c2lnbmVk{len(text)}=="}


def calls(*ids: str, before: tuple[dict[str, Any], ...] = ()) -> Row:
    return {
        "role": "assistant",
        "content": [*before, *({"type": "tool_call", "id": i, "name": "look", "input": {"at": i}} for i in ids)],
        "tool_calls": [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ids],
    }


def result(call_id: str, text: str = "done") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "name": "look", "content": text}


def pending(call_id: str) -> Row:
    text = "Still running. A later message has the result; do not repeat the call."
    return {**result(call_id, text), "metadata": {"pending": True}}


def late(call_id: str, text: str = "done") -> Row:
    told = f"[Results of tool calls that were still at work:]\n- call {call_id}, look: {text}"
    return {"role": "user", "content": told, "metadata": {"results": [call_id]}}


def a_tool_step(number: int, text: str = "found it " * 10) -> list[Row]:
    return [calls(f"c{number}"), result(f"c{number}", text)]


def tool_steps(*numbers: int, text: str = "found it " * 10) -> list[Row]:
    return [row for number in range(*numbers) for row in a_tool_step(number, text)]


def is_note(row: Row) -> bool:
    """Return whether a row replaces rows that are left out."""
    return "left_out" in (row.get("metadata") or {})


def is_shortened(row: Row, whole: Row) -> bool:
    """Return whether only the content of a row was changed, with a note about it."""
    content = row["content"]
    if not isinstance(content, str) or {**row, "content": whole["content"]} != whole:
        return False
    beginning, mark, rest = content.partition("[… ")
    begins_alike = not isinstance(whole["content"], str) or whole["content"].startswith(beginning.removesuffix("\n"))
    return begins_alike and LEFT_OUT in mark + rest


def called(rows: list[Row]) -> list[str]:
    return [call["id"] for row in rows for call in row.get("tool_calls", ())]


def answered(rows: list[Row]) -> list[str]:
    return [row["tool_call_id"] for row in rows if row["role"] == "tool"]


def size(rows: list[Row]) -> int:
    return sum(map(estimate, rows))


def problems(rows: list[Row]) -> list[str]:
    """Return why a provider would refuse these rows."""
    return problems_of(ChatRequest(messages=[Message.model_validate(row) for row in rows]))
