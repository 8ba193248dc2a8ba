"""Event data for hooks: each event with the contract's data and with invalid data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, Usage
from orchestrator_interactive.kernel.contracts.models import ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    Payload = dict[str, Any]

_SESSION = {"session_id": "session-1", "parent_id": None}
_CALL = {"tool_name": "write_file", "tool_input": {"path": "notes.md", "text": "Hello"}, "tool_call_id": "call_1"}
_MESSAGES = [{"role": "user", "content": "Hello"}]


def contract_payload(event: str) -> Payload:
    """Return the data of an event in the kernel's types; for a non-canonical event, the session ids only."""
    usage = Usage(input_tokens=3, output_tokens=2, total_tokens=5)
    response = ChatResponse(content=[TextBlock(text="Hello")], usage=usage)
    failed = ToolResult(success=False, error={"message": "It failed.", "type": "OSError"})
    known: dict[str, Payload] = {
        events.SESSION_START: {"config": {"session": {"orchestrator": "loop", "context": "context"}}},
        events.SESSION_RESUME: {"config": {"session": {"orchestrator": "loop", "context": "context"}}},
        events.SESSION_FORK: {"config": {"session": {}}, "parent": "session-0"},
        events.SESSION_END: {"status": "completed", "stats": {"prompts": 1, "duration_s": 1.5}},
        events.PROMPT_SUBMIT: {"prompt": "Hello"},
        events.PROMPT_COMPLETE: {"prompt": "Hello", "response": "Hello"},
        events.EXECUTION_START: {"prompt": "Hello"},
        events.EXECUTION_END: {"response": "Hello", "status": "completed"},
        events.ORCHESTRATOR_COMPLETE: {"orchestrator": "loop", "turn_count": 1, "status": "success"},
        events.PROVIDER_REQUEST: {"provider": "mock", "messages": _MESSAGES, "model": "mock-1"},
        events.PROVIDER_RESPONSE: {"provider": "mock", "response": response, "usage": usage},
        events.PROVIDER_ERROR: {"provider": "mock", "error": OSError("The network is down.")},
        events.TOOL_PRE: _CALL,
        events.TOOL_POST: {**_CALL, "tool_result": ToolResult(output="Done"), "error": None},
        events.TOOL_ERROR: {**_CALL, "tool_result": failed, "error": failed.error},
        events.CONTEXT_PRE_COMPACT: {"message_count": 90, "token_count": 90_000},
        events.CONTEXT_POST_COMPACT: {"message_count": 9, "token_count": 9_000},
        events.CANCEL_REQUESTED: {"immediate": False},
        events.CANCEL_COMPLETED: {"was_immediate": False},
        events.USER_NOTIFICATION: {"message": "Hello", "level": "info"},
    }
    return {**_SESSION, **known.get(event, {})}


def odd_payloads(event: str) -> Iterator[tuple[str, Payload]]:
    """Yield invalid event data, each with a description."""
    payload = contract_payload(event)
    yield "{}", {}
    yield "nothing but None", dict.fromkeys(payload)
    yield "values of the wrong types", {name: [value] for name, value in payload.items()}
    yield "texts for everything", dict.fromkeys(payload, "text")
    if any(isinstance(value, ToolResult | ChatResponse) for value in payload.values()):
        plain = (ToolResult, ChatResponse, Usage)
        # amplifier_core's registry sends every event through JSON.
        as_json = {name: value.model_dump() if isinstance(value, plain) else value for name, value in payload.items()}
        yield "results as dictionaries", as_json
