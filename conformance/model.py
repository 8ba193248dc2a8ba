"""A model that answers with the marks of the messages it has not answered yet: Anthropic's and OpenAI's HTTP APIs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = re.compile(r"\bmk\d{4}\b")
# The answer to a request without new marks.
NOTHING = "There is nothing new."
ANSWER = re.compile(r"Read:((?: mk\d{4})+)")


@dataclass(frozen=True)
class Request:
    """A request of the agent: the marks in it, and its time (monotonic, seconds)."""

    marks: tuple[str, ...]
    at_s: float


class Model:
    """Serves while the ``async with`` block runs. An answer is a function of its request."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.url = ""
        self._open = asyncio.Event()
        self._open.set()
        self._reached = asyncio.Condition()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{_:.*}messages", self._anthropic)
        app.router.add_post("/{_:.*}chat/completions", self._openai)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0][:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open.set()
        await self._runner.cleanup()

    def hold(self) -> None:
        """Keep all answers back until ``release``."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def reached(self, mark: str, timeout_s: float) -> bool:
        """Wait for a request with this mark; returns whether it came."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._reached:
                await self._reached.wait_for(lambda: self.has_read(mark))
        return self.has_read(mark)

    def has_read(self, mark: str) -> bool:
        return any(mark in request.marks for request in self.requests)

    async def _answer(self, request: web.Request) -> tuple[dict[str, Any], str]:
        """Return the request and the text of the answer."""
        body = await request.json()
        said = "\n".join(_texts(body.get("messages")))
        answered = {mark for found in ANSWER.findall(said) for mark in found.split()}
        marks = tuple(dict.fromkeys(MARK.findall(said)))
        new = [mark for mark in marks if mark not in answered]
        async with self._reached:
            self.requests.append(Request(marks, time.monotonic()))
            self._reached.notify_all()
        await self._open.wait()
        return body, f"Read: {' '.join(new)}" if new else NOTHING

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        body, text = await self._answer(request)
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model"), "usage": usage}
        block, ended = {"type": "text", "text": text}, {"stop_reason": "end_turn", "stop_sequence": None}
        if not body.get("stream"):
            return web.json_response({**message, "content": [block], **ended})
        return await _streamed(request, _events({**message, "content": []}, text, ended, usage))

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        body, text = await self._answer(request)
        head = {"id": "chatcmpl-1", "created": 1, "model": body.get("model")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            return web.json_response({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        return await _streamed(request, _chunks({**head, "object": "chat.completion.chunk"}, text, usage))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from _texts(each)


async def _streamed(request: web.Request, lines: Iterator[str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    with suppress(ConnectionResetError):  # the agent was stopped or killed
        await response.prepare(request)
        for line in lines:
            await response.write(line.encode())
        await response.write_eof()
    return response


def _events(message: dict[str, Any], text: str, ended: dict[str, Any], usage: dict[str, int]) -> Iterator[str]:
    events = (
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": usage},
        {"type": "message_stop"},
    )
    return (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _chunks(head: dict[str, Any], text: str, usage: dict[str, int]) -> Iterator[str]:
    deltas: tuple[tuple[dict[str, str], str | None], ...] = (
        ({"role": "assistant", "content": ""}, None),
        ({"content": text}, None),
        ({}, "stop"),
    )
    for delta, reason in deltas:
        yield f"data: {json.dumps({**head, 'choices': [{'index': 0, 'delta': delta, 'finish_reason': reason}]})}\n\n"
    yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"
