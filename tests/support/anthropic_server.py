"""A Messages API on your machine: real HTTP, real server-sent events, every answer scripted by the test.

    async with AnthropicServer() as server:
        server.reply(text("Hello, ", gate, "world"), tool_call("read", {"path": "a"}))
        ...  # point the SDK at server.base_url
        await gate.reached.wait()  # the client has "Hello, " (or it is in flight)
        gate.open()

`server.requests` are the calls that came in, `server.bodies` their JSON bodies.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from aiohttp import web
from chat_completions import as_chunks, as_messages_body, error_body
from tool_gate import Reached


class Gate:
    """A place in a stream where the server stops until the test opens it."""

    def __init__(self) -> None:
        self.reached = Reached()
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def pass_through(self) -> None:
        self.reached.set()
        await self._opened.wait()


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in a stream where the connection drops."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an HTTP error."""

    status: int
    kind: str = "api_error"
    message: str = "Something went wrong."
    headers: Mapping[str, str] = field(default_factory=dict)


Event = dict[str, Any]
Step = Event | Gate | asyncio.Event | Cut | bytes
"""A step of a stream: an event, a gate, an end of the connection, or raw bytes.

A place to wait at the very beginning holds the response's headers back too.
"""

Piece = str | Gate | asyncio.Event | Cut


@dataclass(frozen=True, slots=True)
class Block:
    """A content block as a stream shows it: how it begins, and how it grows."""

    start: Event
    deltas: Sequence[Step]

    def steps(self, index: int) -> Iterator[Step]:
        yield {"type": "content_block_start", "index": index, "content_block": self.start}
        for delta in self.deltas:
            if isinstance(delta, dict):
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            else:
                yield delta
        yield {"type": "content_block_stop", "index": index}


def text(*pieces: Piece) -> Block:
    """A text block; each string is one delta."""
    return Block({"type": "text", "text": ""}, _deltas(pieces, "text_delta", "text"))


def thinking(*pieces: Piece, signature: str = "signed") -> Block:
    deltas = _deltas(pieces, "thinking_delta", "thinking")
    signed = [{"type": "signature_delta", "signature": signature}] if signature else []
    return Block({"type": "thinking", "thinking": "", "signature": ""}, [*deltas, *signed])


def redacted_thinking(data: str) -> Block:
    return Block({"type": "redacted_thinking", "data": data}, [])


_call_numbers = count(1)


def tool_call(name: str, arguments: Any = None, *pieces: Piece, call_id: str | None = None) -> Block:
    """A tool call. Its input is `arguments`, or, where `pieces` are given, exactly these pieces of JSON."""
    start = {"type": "tool_use", "id": call_id or f"toolu_{next(_call_numbers)}", "name": name, "input": {}}
    whole = json.dumps(arguments or {})
    middle = len(whole) // 2
    return Block(start, _deltas(pieces or ("", whole[:middle], whole[middle:]), "input_json_delta", "partial_json"))


def message(
    *blocks: Block | Step, stop_reason: str | None = None, usage: Mapping[str, Any] | None = None
) -> list[Step]:
    """A whole answer as its events. `usage` adds to, or replaces, the figures of the first event."""
    called = any(isinstance(block, Block) and block.start["type"] == "tool_use" for block in blocks)
    return [
        message_start(usage=usage),
        {"type": "ping"},
        *(step for index, block in enumerate(blocks) for step in _steps(block, index)),
        message_delta(stop_reason or ("tool_use" if called else "end_turn")),
        {"type": "message_stop"},
    ]


def message_start(*, usage: Mapping[str, Any] | None = None) -> Event:
    start: Event = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-of-the-test",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1, **(usage or {})},
    }
    return {"type": "message_start", "message": start}


def message_delta(stop_reason: str, *, output_tokens: int = 5) -> Event:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output_tokens}}


def error_event(kind: str, said: str = "Something went wrong.") -> Event:
    return {"type": "error", "error": {"type": kind, "message": said}}


@dataclass(slots=True)
class Received:
    """A call that came in.

    `peer` tells connections apart; `ended` is set when it is over, `left` says that the client hung up first.
    """

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    peer: Any = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    left: bool = False


Reply = Failure | list[Step]


class AnthropicServer:
    """Answers in the order in which replies were queued, and with `otherwise(body)` when none is left."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.models: list[dict[str, Any]] = []
        self.otherwise: Callable[[dict[str, Any]], Reply] = _nothing_scripted
        self._arrived = asyncio.Condition()
        self._replies: deque[Reply] = deque()
        self._site: web.TCPSite | None = None
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/chat/completions", self._chat_completions)
        app.router.add_get("/v1/models", self._list_models)
        # A test may leave while a stream is held: nothing is waited for.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    @property
    def env(self) -> dict[str, str]:
        """Return the environment variables that point a service here; PROVIDER=openai: to Chat Completions."""
        if os.environ.get("PROVIDER") == "openai":
            return {"OPENAI_API_KEY": "sk-of-the-test", "OPENAI_BASE_URL": f"{self.base_url}/v1", "OPENAI_MODEL": "m"}
        return {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": self.base_url}

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def reply(
        self, *blocks: Block | Step, stop_reason: str | None = None, usage: Mapping[str, Any] | None = None
    ) -> None:
        """Queue a complete answer with the given blocks."""
        self._replies.append(message(*blocks, stop_reason=stop_reason, usage=usage))

    def reply_steps(self, *steps: Step) -> None:
        """Queue exactly these events and nothing around them."""
        self._replies.append(list(steps))

    def fail(
        self,
        status: int,
        kind: str = "api_error",
        said: str = "Something went wrong.",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Queue an HTTP error."""
        self._replies.append(Failure(status, kind, said, headers or {}))

    async def arrived(self, number: int) -> Received:
        """Wait for the call with this number, and return it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, await request.json())

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        """Answer in the Chat Completions API; `bodies` has the request in the form of the Messages API."""
        return await self._answer(request, as_messages_body(await request.json()), is_chat=True)

    async def _answer(self, request: web.Request, body: dict[str, Any], *, is_chat: bool = False) -> web.StreamResponse:
        received = Received(request.path, dict(request.headers), body, _peer(request))
        async with self._arrived:
            self.requests.append(received)
            self._arrived.notify_all()
        reply = self._replies.popleft() if self._replies else self.otherwise(received.body)
        try:
            if isinstance(reply, Failure):
                return _error_response(reply, is_chat=is_chat)
            return await _stream(request, tuple(as_chunks(reply)) if is_chat else reply)
        except (asyncio.CancelledError, ConnectionResetError):
            received.left = True
            raise
        finally:
            received.ended.set()

    async def _list_models(self, request: web.Request) -> web.Response:
        self.requests.append(Received(request.path_qs, dict(request.headers), {}, _peer(request)))
        if self._replies and isinstance(reply := self._replies[0], Failure):
            self._replies.popleft()
            return _error_response(reply)
        return web.json_response({"data": self.models, "has_more": False, "first_id": None, "last_id": None})


def _peer(request: web.Request) -> Any:
    return request.transport.get_extra_info("peername") if request.transport else None


def _deltas(pieces: Sequence[Piece], kind: str, key: str) -> list[Step]:
    return [{"type": kind, key: piece} if isinstance(piece, str) else piece for piece in pieces]


def _steps(block: Block | Step, index: int) -> Iterator[Step]:
    if isinstance(block, Block):
        yield from block.steps(index)
    else:
        yield block


def _nothing_scripted(_body: dict[str, Any]) -> Reply:
    return Failure(400, "invalid_request_error", "The test has scripted no reply for this request.")


def _error_response(failure: Failure, *, is_chat: bool = False) -> web.Response:
    body = {"type": "error", "error": {"type": failure.kind, "message": failure.message}, "request_id": "req_1"}
    if is_chat:
        body = error_body(failure.kind, failure.message)
    return web.json_response(body, status=failure.status, headers=dict(failure.headers))


async def _stream(request: web.Request, steps: Sequence[Step]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    for step in steps:
        if not response.prepared and not isinstance(step, (Gate, asyncio.Event)):
            await response.prepare(request)
        match step:
            case Gate():
                await step.pass_through()
            case asyncio.Event():
                await step.wait()
            case Cut():
                if request.transport is not None:
                    request.transport.abort()
                return response
            case bytes():
                await response.write(step)
            case _:
                await response.write(f"event: {step['type']}\ndata: {json.dumps(step)}\n\n".encode())
    if not response.prepared:
        await response.prepare(request)
    await response.write_eof()
    return response
