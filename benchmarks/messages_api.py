"""A local Messages API and Chat Completions API: real HTTP and server-sent events.

The request sets the number of deltas.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import uvloop
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    Event = dict[str, Any]
    OnRequest = Callable[[dict[str, Any]], Awaitable[None]]

# Model names that select how the answer is sent; the last one sends a few words and then stalls.
ALL_AT_ONCE, ONE_BY_ONE, HANGING = "all-at-once", "one-by-one", "hanging"
WORDS = " and then"
# Time for the reader to process an event and to wait for the next one.
PAUSE_S = 0.0002


@asynccontextmanager
async def messages_api(on_request: OnRequest) -> AsyncIterator[str]:
    """Serve in this process and call `on_request` for every request; returns the address.

    An answer has `max_tokens` deltas of `WORDS`.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        await on_request(asked)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        with suppress(ConnectionResetError):  # the client disconnects after a stop or a `!`
            await response.prepare(request)
            lines = _chunks if request.path.endswith("completions") else _events
            await _stream(response, asked["model"], lines(asked["max_tokens"]))
        return response

    app = web.Application()
    app.router.add_post("/v1/messages", answer)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def messages_api_elsewhere() -> AsyncIterator[str]:
    """Serve in a separate process, so that its work is not measured."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.messages_api", stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield (await process.stdout.readline()).decode().strip() if process.stdout else ""
    finally:
        process.kill()
        await process.wait()


async def _stream(response: web.StreamResponse, manner: str, events: Iterator[bytes]) -> None:
    if manner == HANGING:
        await response.write(b"".join(islice(events, 4)))
        await asyncio.Event().wait()
    elif manner == ALL_AT_ONCE:
        await response.write(b"".join(events))
    else:
        for event in events:
            await response.write(event)
            time.sleep(PAUSE_S)  # noqa: ASYNC251 - asyncio.sleep cannot wait for so short a time; there is only one client
    await response.write_eof()


def _events(deltas: int) -> Iterator[bytes]:
    return (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in _messages(deltas))


def _chunks(deltas: int) -> Iterator[bytes]:
    """Yield the same answer in the Chat Completions API."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "model"}

    def chunk(delta: Event, stop: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
        return f"data: {json.dumps({**head, 'choices': [choice], 'usage': None})}\n\n".encode()

    yield chunk({"role": "assistant", "content": ""})
    for _ in range(deltas):
        yield chunk({"content": WORDS})
    yield chunk({}, "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": deltas, "total_tokens": deltas + 10}
    yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()


def _messages(deltas: int) -> Iterator[Event]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "model", "content": []}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": start}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for _ in range(deltas):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORDS}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": deltas}}
    yield {"type": "message_stop"}


async def _main() -> None:
    async def unheard(_asked: dict[str, Any]) -> None:
        pass

    async with messages_api(unheard) as address:
        print(address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as main:
        main.run(_main())
