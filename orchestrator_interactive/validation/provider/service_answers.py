"""Responses in the formats of Anthropic's Messages API and OpenAI's Chat Completions API, which most providers use.

Both contain a text and a tool call; Anthropic's also contains signed thinking.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

TEXT = "Apples and pears."
CALL = "toolu_answer19"
SIGNATURE = "YW5zd2VyU2lnbmF0dXJl"
INPUT_TOKENS, OUTPUT_TOKENS = 21, 13
_ARGUMENTS = {"path": "2.txt"}
_MODEL = "validation-1"
_DATE = "2025-06-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """A response with status 200. `has_signature`: whether it contains signed thinking."""

    content_type: str
    body: bytes
    has_signature: bool = False


def service_answer(path: str, body: bytes) -> ServiceAnswer | None:
    """Return the response of the API at this path; `None` for other APIs."""
    path = path.partition("?")[0].rstrip("/")
    if path.endswith("/models"):
        return _json(_MODELS)
    streams = _is_streaming(body)
    if path.endswith("/messages"):
        answer = _events(_messages_events(), named=True) if streams else _json(_message())
        return ServiceAnswer(answer.content_type, answer.body, has_signature=True)
    if path.endswith("/chat/completions"):
        return _events([*_completion_chunks()], named=False) if streams else _json(_completion())
    return None


def _is_streaming(body: bytes) -> bool:
    try:
        return bool(json.loads(body).get("stream"))
    except (ValueError, AttributeError):
        return False


def _json(content: Any) -> ServiceAnswer:
    return ServiceAnswer("application/json", json.dumps(content).encode())


def _events(events: list[dict[str, Any]], *, named: bool) -> ServiceAnswer:
    """Return server-sent events: Anthropic's have names, OpenAI's an end marker."""
    lines = [line for e in events for line in ([f"event: {e['type']}"] if named else []) + [f"data: {json.dumps(e)}\n"]]
    end = [] if named else ["data: [DONE]\n"]
    return ServiceAnswer("text/event-stream", "\n".join([*lines, *end, ""]).encode())


_MODELS = {
    "object": "list",
    "data": [
        {
            "id": _MODEL,
            "type": "model",
            "object": "model",
            "display_name": "Validation 1",
            "created": 1_748_736_000,
            "created_at": _DATE,
            "owned_by": "validation",
        }
    ],
    "has_more": False,
    "first_id": _MODEL,
    "last_id": _MODEL,
}

_BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "thinking", "thinking": "One file more.", "signature": SIGNATURE},
    {"type": "text", "text": TEXT},
    {"type": "tool_use", "id": CALL, "name": "read_file", "input": _ARGUMENTS},
)


def _message() -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": _MODEL,
        "content": list(_BLOCKS),
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
    }


def _messages_events() -> list[dict[str, Any]]:
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1}
    start = {**_message(), "content": [], "stop_reason": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(_BLOCKS):
        empty, deltas = _deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": OUTPUT_TOKENS}})
    return [*events, {"type": "message_stop"}]


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the empty block that starts a stream, and its deltas."""
    match block["type"]:
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [thought, signed]
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case _:
            given = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            return {**block, "input": {}}, [given]


def _completion_usage() -> dict[str, int]:
    total = INPUT_TOKENS + OUTPUT_TOKENS
    return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}


def _call() -> dict[str, Any]:
    return {
        "id": CALL,
        "type": "function",
        "function": {"name": "read_file", "arguments": json.dumps(_ARGUMENTS)},
    }


def _completion() -> dict[str, Any]:
    message = {"role": "assistant", "content": TEXT, "tool_calls": [_call()], "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_748_736_000, "model": _MODEL}
    return {**head, "choices": [choice], "usage": _completion_usage()}


def _completion_chunks() -> list[dict[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_748_736_000, "model": _MODEL}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": TEXT}, None),
        ({"tool_calls": [{"index": 0, **_call()}]}, None),
        ({}, "tool_calls"),
    ]
    chunks = [{**head, "choices": [{"index": 0, "delta": d, "finish_reason": end}]} for d, end in deltas]
    return [*chunks, {**head, "choices": [], "usage": _completion_usage()}]
