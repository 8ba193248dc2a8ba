"""Mock server of a model's service: records requests and answers, refuses or delays them.

It knows Anthropic's Messages API and OpenAI's Chat Completions API, which most providers use. Both answers contain a
text and a tool call; Anthropic's also contains signed thinking.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = "Apples and pears."
ANSWER_SIGNATURE = "YW5zd2VyU2lnbmF0dXJl"
_INPUT_TOKENS, _OUTPUT_TOKENS = 21, 13
_MODEL, _DATE = "validation-1", "2025-06-01T00:00:00Z"
_BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "thinking", "thinking": "One file more.", "signature": ANSWER_SIGNATURE},
    {"type": "text", "text": TEXT},
    {"type": "tool_use", "id": "toolu_answer19", "name": "read_file", "input": {"path": "2.txt"}},
)
_MODEL_INFO = {
    "id": _MODEL,
    "type": "model",
    "object": "model",
    "display_name": "Validation 1",
    "created": 1_748_736_000,
}
_MODELS = {
    "object": "list",
    "data": [_MODEL_INFO | {"created_at": _DATE, "owned_by": "validation"}],
    "has_more": False,
    "first_id": _MODEL,
    "last_id": _MODEL,
}
# A bad request, which clients do not retry. The body combines the formats of several services.
_REFUSAL = {
    "type": "error",
    "error": {"type": "invalid_request_error", "code": "invalid_request", "message": "This is only a validation."},
}
_POLL_INTERVAL_S = 0.02  # at which the server checks for its shutdown


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """A response. `has_signature`: whether it contains signed thinking."""

    content_type: str
    body: bytes
    has_signature: bool = False


@dataclass(frozen=True, slots=True)
class Caught:
    """One request and its answer; `None` if it was refused."""

    body: bytes
    answer: ServiceAnswer | None


class CatchingServer:
    """HTTP server on a free local port, in a thread: a provider may block the event loop during a call."""

    def __init__(self) -> None:
        self.caught: list[Caught] = []
        self._mode: Literal["answer", "refuse", "delay"] = "answer"
        self._arrived = threading.Event()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answer))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_INTERVAL_S,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def set_mode(self, mode: Literal["answer", "refuse", "delay"]) -> None:
        """Set how to handle the next requests: answer those of a known format, refuse, or delay."""
        self._mode = mode
        self._arrived.clear()
        if mode == "delay":
            self._released.clear()
        else:
            self._released.set()

    async def wait_for_request(self, within_s: float) -> bool:
        """Wait for a request since the latest `set_mode`; return False after `within_s` seconds."""
        return await asyncio.to_thread(self._arrived.wait, within_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.set_mode("refuse")
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, path: str, body: bytes) -> ServiceAnswer | None:
        answer = service_answer(path, body) if self._mode == "answer" else None
        self.caught.append(Caught(body, answer))
        self._arrived.set()
        if self._mode == "delay":
            self._released.wait()
        return answer


def _handler(answer_to: Callable[[str, bytes], ServiceAnswer | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            answer = answer_to(self.path, _body(self))
            shown = answer or _json(_REFUSAL)
            self.send_response(200 if answer else 400)
            self.send_header("Content-Type", shown.content_type)
            self.send_header("Content-Length", str(len(shown.body)))
            self.end_headers()
            self.wfile.write(shown.body)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names are the base class's

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in request.headers.get("Transfer-Encoding", "").lower():
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(chunks)


def service_answer(path: str, body: bytes) -> ServiceAnswer | None:
    """Return the response of the API at this path; `None` for other APIs."""
    path = path.partition("?")[0].rstrip("/")
    try:
        streams = bool(json.loads(body).get("stream"))
    except (ValueError, AttributeError):
        streams = False
    if path.endswith("/models"):
        return _json(_MODELS)
    if path.endswith("/messages"):
        answer = _stream([(event["type"], event) for event in _message_events()]) if streams else _json(_message())
        return ServiceAnswer(answer.content_type, answer.body, has_signature=True)
    if path.endswith("/chat/completions"):
        return _stream([("", chunk) for chunk in _chunks()], "data: [DONE]\n\n") if streams else _json(_completion())
    return None


def _json(content: Any) -> ServiceAnswer:
    return ServiceAnswer("application/json", json.dumps(content).encode())


def _stream(events: list[tuple[str, dict[str, Any]]], end: str = "") -> ServiceAnswer:
    """Return server-sent events: Anthropic's have names, OpenAI's an end marker."""
    lines = [f"{f'event: {name}' if name else ''}\ndata: {json.dumps(data)}\n\n".lstrip() for name, data in events]
    return ServiceAnswer("text/event-stream", ("".join(lines) + end).encode())


def _message() -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": _MODEL,
        "content": list(_BLOCKS),
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": _INPUT_TOKENS, "output_tokens": _OUTPUT_TOKENS},
    }


def _message_events() -> list[dict[str, Any]]:
    thinking, text, call = _BLOCKS
    arguments = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
    thought = {"type": "thinking_delta", "thinking": thinking["thinking"]}
    streamed: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {**thinking, "thinking": "", "signature": ""},
            [thought, {"type": "signature_delta", "signature": ANSWER_SIGNATURE}],
        ),
        ({**text, "text": ""}, [{"type": "text_delta", "text": TEXT}]),
        ({**call, "input": {}}, [arguments]),
    ]
    start = {
        **_message(),
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": _INPUT_TOKENS, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, (empty, deltas) in enumerate(streamed):
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": _OUTPUT_TOKENS}})
    return [*events, {"type": "message_stop"}]


_HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_748_736_000, "model": _MODEL}
_TOTAL = _INPUT_TOKENS + _OUTPUT_TOKENS
_USAGE = {"prompt_tokens": _INPUT_TOKENS, "completion_tokens": _OUTPUT_TOKENS, "total_tokens": _TOTAL}
_FUNCTION = {"name": "read_file", "arguments": json.dumps(_BLOCKS[2]["input"])}
_CALL = {"id": _BLOCKS[2]["id"], "type": "function", "function": _FUNCTION}


def _completion() -> dict[str, Any]:
    message = {"role": "assistant", "content": TEXT, "tool_calls": [_CALL], "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
    return {**_HEAD, "choices": [choice], "usage": _USAGE}


def _chunks() -> list[dict[str, Any]]:
    head = {**_HEAD, "object": "chat.completion.chunk"}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": TEXT}, None),
        ({"tool_calls": [{"index": 0, **_CALL}]}, None),
        ({}, "tool_calls"),
    ]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
    return [*chunks, {**head, "choices": [], "usage": _USAGE}]
