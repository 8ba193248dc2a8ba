"""The Chat Completions API in terms of the Messages API: the same scripts answer both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Body = dict[str, Any]
_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
_KINDS = {
    "overloaded_error": "server_error",
    "api_error": "server_error",
    "rate_limit_error": "rate_limit_exceeded",
    "authentication_error": "invalid_api_key",
}


# The start of a row in a user message; the text of a person never begins at the first column.
_ROW = re.compile(r"\n\n(?=\S)")


def as_messages_body(body: Body) -> Body:
    """Return a request of the Chat Completions API as one of the Messages API."""
    system = [{"type": "text", "text": each["content"]} for each in body["messages"] if each["role"] == "system"]
    messages: list[Body] = []
    for each in body["messages"]:
        if each["role"] == "system":
            continue
        role = "assistant" if each["role"] == "assistant" else "user"
        blocks = list(_blocks(each))
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    tools = [
        {"name": each["function"]["name"], "input_schema": each["function"]["parameters"], **_described(each)}
        for each in body.get("tools", ())
    ]
    rest = {name: body[name] for name in ("model", "tool_choice") if name in body}
    if rest.get("tool_choice") in {"none", "auto"}:
        rest["tool_choice"] = {"type": rest["tool_choice"]}
    return {"system": system, "messages": messages, **({"tools": tools} if tools else {}), **rest}


def _described(tool: Body) -> Body:
    return {key: tool["function"][key] for key in ("description",) if key in tool["function"]}


def _blocks(message: Body) -> Iterator[Body]:
    content = message.get("content") or ""
    if "reasoning_content" in message:
        yield {"type": "thinking", "thinking": message["reasoning_content"]}
    if message["role"] == "tool":
        failed = {"is_error": True} if content.startswith("Error: ") else {}
        result = content.removeprefix("Error: ")
        yield {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": result, **failed}
        return
    if isinstance(content, str):
        rows = _ROW.split(content) if message["role"] == "user" else [content]
        yield from ({"type": "text", "text": row} for row in rows if row)
    else:
        yield from content
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}


def error_body(kind: str, said: str) -> Body:
    return {"error": {"type": _KINDS.get(kind, kind), "code": _KINDS.get(kind), "message": said}}


def as_chunks(steps: Sequence[Any]) -> Iterator[Any]:
    """Return the steps of a Messages API stream as those of the other API: raw bytes for its events."""
    usage: Body = {}
    places: dict[int, int] = {}
    for step in steps:
        match step:
            case {"type": "error", "error": error}:
                yield _line(error_body(error["type"], error["message"]))
            case {"type": "message_stop"}:
                yield _line({"id": "msg_1", "choices": [], "usage": _usage(usage)})
                yield b"data: [DONE]\n\n"
            case {"type": "message_delta", "delta": ended}:
                usage = {**usage, **step["usage"]}
                yield _chunk({}, _STOPS.get(ended["stop_reason"], ended["stop_reason"]))
            case {"type": "message_start", "message": begun}:
                usage = begun["usage"]
                yield _chunk({"role": "assistant", "content": ""})
            case dict():
                if delta := _delta(step, places):
                    yield _chunk(delta)
            case _:
                yield step


def _delta(step: Body, places: dict[int, int]) -> Body | None:
    match step:
        case {"type": "content_block_start", "index": index, "content_block": {"type": "tool_use"} as call}:
            places[index] = len(places)
            function = {"name": call["name"], "arguments": ""}
            return {"tool_calls": [{"index": places[index], "id": call["id"], "function": function}]}
        case {"index": index, "delta": {"type": "input_json_delta", "partial_json": text}}:
            return {"tool_calls": [{"index": places[index], "function": {"arguments": text}}]}
        case {"delta": {"type": "text_delta", "text": text}}:
            return {"content": text}
        case {"delta": {"type": "thinking_delta", "thinking": text}}:
            return {"reasoning_content": text}
    return None


def _chunk(delta: Body, stop: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": stop}
    return _line({"id": "msg_1", "model": "claude-of-the-test", "choices": [choice]})


def _usage(usage: Body) -> Body:
    cached = usage.get("cache_read_input_tokens", 0)
    return {
        "prompt_tokens": usage["input_tokens"] + cached,
        "completion_tokens": usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _line(data: Body) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()
